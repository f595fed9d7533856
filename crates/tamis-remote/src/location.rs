//! Addresses of repositories: a URL becomes a store and a prefix within it.

use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use crate::error::Error;

/// A store, and where the repository is in it.
pub(crate) type Location = (Arc<dyn ObjectStore>, Path);

/// Opens the store that a URL names: `file:///directory` (or a plain path), `memory:///`,
/// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Those of the clouds take
/// keys, regions and endpoints from the environment, as `object_store` documents. `timeout` is how
/// long a request may take.
pub(crate) fn open(url: &str, timeout: Duration) -> Result<Location, Error> {
    let bad = |why: String| Error::Url { url: url.to_owned(), why };
    // A plain path, as people type it; one letter before the colon is a drive.
    let parsed = match url.split_once(':') {
        Some((scheme, _)) if scheme.len() > 1 => Url::parse(url).map_err(|error| bad(error.to_string()))?,
        _ => return directory(url.as_ref(), &bad),
    };
    let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|error| bad(error.to_string()))?;
    #[cfg(not(feature = "https"))]
    let _ = timeout;
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::Local => {
            let path = parsed.to_file_path().map_err(|()| bad("it is not the path of a directory".into()))?;
            return directory(&path, &bad);
        }
        ObjectStoreScheme::Memory => Arc::new(InMemory::new()),
        #[cfg(feature = "aws")]
        ObjectStoreScheme::AmazonS3 => {
            let builder = object_store::aws::AmazonS3Builder::from_env().with_url(url);
            Arc::new(cloud!(builder, object_store::aws::AmazonS3ConfigKey::Client, timeout, bad))
        }
        #[cfg(feature = "gcp")]
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(url);
            Arc::new(cloud!(builder, object_store::gcp::GoogleConfigKey::Client, timeout, bad))
        }
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(url);
            Arc::new(cloud!(builder, object_store::azure::AzureConfigKey::Client, timeout, bad))
        }
        _ => return Err(bad("this program was compiled without this kind of store".into())),
    };
    Ok((store, prefix))
}

fn directory(path: &std::path::Path, bad: &dyn Fn(String) -> Error) -> Result<Location, Error> {
    std::fs::create_dir_all(path).map_err(|error| bad(error.to_string()))?;
    // Synced: what a backup reports as done survives a power cut.
    let store =
        LocalFileSystem::new_with_prefix(path).map_err(|error| bad(error.to_string()))?.with_fsync(true);
    Ok((Arc::new(store), Path::default()))
}

/// Sets what all clouds have in common, and builds. Requests are retried by
/// [`Store`](crate::store::Store), which also sees bodies that break off; the few retries here are
/// for the single parts of a large upload, which can only be repeated at this level. The client's
/// own timeout, 30 s by default, must not end requests before ours does.
#[cfg(feature = "https")]
macro_rules! cloud {
    ($builder:expr, $client:path, $timeout:expr, $bad:expr) => {{
        install_tls();
        configured!($builder, $client, $timeout).build().map_err(|error| $bad(error.to_string()))?
    }};
}
#[cfg(feature = "https")]
macro_rules! configured {
    ($builder:expr, $client:path, $timeout:expr) => {{
        let retry = object_store::RetryConfig {
            max_retries: 4,
            retry_timeout: std::time::Duration::from_secs(60),
            ..Default::default()
        };
        let timeout = format!("{} seconds", $timeout.as_secs().saturating_add(5));
        $builder.with_retry(retry).with_config($client(object_store::ClientConfigKey::Timeout), timeout)
    }};
}
#[cfg(feature = "https")]
use {cloud, configured};

/// Makes ring the process's implementation of TLS, unless the program has chosen one.
/// [`Repository::open`](crate::Repository::open) does so by itself; a program that builds a cloud's
/// store itself calls this first.
#[cfg(feature = "https")]
pub fn install_tls() {
    // The error is that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_urls() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b");
        let open = |url: &str| open(url, Duration::from_secs(60));
        open(path.to_str().unwrap()).unwrap();
        open(Url::from_file_path(&path).unwrap().as_str()).unwrap();
        let (_, prefix) = open("memory:///x/y").unwrap();
        assert_eq!(prefix.as_ref(), "x/y");
        for bad in ["ftp://host/x", "http://host/x", "s3:", "file://host/x"] {
            assert!(matches!(open(bad), Err(Error::Url { .. })), "{bad}");
        }
    }

    #[cfg(feature = "aws")]
    #[test]
    fn the_clients_timeout_is_longer_than_ours() {
        use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
        let timeout = Duration::from_secs(600);
        let builder = configured!(AmazonS3Builder::new(), AmazonS3ConfigKey::Client, timeout);
        let key = AmazonS3ConfigKey::Client(object_store::ClientConfigKey::Timeout);
        assert_eq!(builder.get_config_value(&key).as_deref(), Some("10m 5s"));
    }
}
