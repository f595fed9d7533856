use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions, PutOptions, PutResult, Result,
};

use super::*;

fn store(inner: Arc<dyn ObjectStore>, timeout: Duration) -> Store {
    let transfer = Transfer { timeout, attempts: 1, ..Transfer::default() };
    Store::new(inner, Path::default(), transfer)
}

#[test]
fn an_object_that_is_too_long_is_not_taken() {
    let store = store(Arc::new(InMemory::new()), Duration::from_secs(60));
    store.put("x", vec![7; 1000].into()).unwrap();
    assert_eq!(store.get("x", 1000).unwrap().len(), 1000);
    assert_eq!(store.requests().bytes_fetched, 1000);
    let refused = store.get("x", 999);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(store.requests().bytes_fetched, 1000);
    assert!(!store.put_new("x", vec![7; 999].into()).unwrap());
    assert!(!store.put_new("x", vec![8; 1000].into()).unwrap());
    assert!(store.put_new("x", vec![7; 1000].into()).unwrap());
}

/// A store whose listings pause before each object.
#[derive(Debug)]
struct Slow(InMemory, Duration);

impl std::fmt::Display for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, path: &Path, bytes: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(path, bytes, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let pause = self.1;
        self.0
            .list(prefix)
            .then(move |object| async move {
                tokio::time::sleep(pause).await;
                object
            })
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[test]
fn a_long_listing_may_take_longer_than_an_attempt() {
    let listed = |pause: Duration| {
        let store = store(Arc::new(Slow(InMemory::new(), pause)), Duration::from_secs(2));
        for name in 0..5 {
            store.put(&format!("x/{name}"), Bytes::new()).unwrap();
        }
        store.list("x", None)
    };
    assert_eq!(listed(Duration::from_millis(500)).unwrap().len(), 5);
    // One that has stopped ends.
    assert!(matches!(listed(Duration::from_secs(3600)), Err(Error::Request { .. })));
}
