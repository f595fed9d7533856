//! A store that fails, for tests: what networks and services do to requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tamis_testkit::Rng;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and has no effect: an answer of status 500.
    Refused,
    /// It takes effect, but its answer is lost.
    Unanswered,
    /// Its answer never comes, and it has no effect.
    Hangs,
    /// The answer ends early. What has no body is refused.
    CutShort,
    /// One byte of the answer is another one. What has no body goes well.
    WrongByte,
    /// It is refused for good.
    Forbidden,
}

/// Those after which another attempt helps.
pub(crate) const PASSING: [Fault; 4] = [Fault::Refused, Fault::Unanswered, Fault::Hangs, Fault::CutShort];

#[derive(Debug)]
enum Plan {
    None,
    /// The request of this number, and all later ones if so.
    At(u64, Fault, bool),
    /// Some, by chance: one in so many.
    Random(Rng, u64, Vec<Fault>),
}

/// A store in memory, or in a directory. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Faulty(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    plan: Mutex<Plan>,
    requests: AtomicU64,
}

impl Faulty {
    pub(crate) fn new() -> Faulty {
        Faulty::over(Arc::new(InMemory::new()))
    }

    pub(crate) fn over(store: Arc<dyn ObjectStore>) -> Faulty {
        let plan = Mutex::new(Plan::None);
        Faulty(Arc::new(Inner { store, plan, requests: AtomicU64::new(0) }))
    }

    fn plan(&self, plan: Plan) {
        *self.0.plan.lock().unwrap() = plan;
        self.0.requests.store(0, SeqCst);
    }

    pub(crate) fn sound(&self) {
        self.plan(Plan::None);
    }

    /// The request of this number fails, counted from now.
    pub(crate) fn fail_at(&self, request: u64, fault: Fault) {
        self.plan(Plan::At(request, fault, false));
    }

    /// So do all that follow: as for a process that dies.
    pub(crate) fn fail_from(&self, request: u64, fault: Fault) {
        self.plan(Plan::At(request, fault, true));
    }

    pub(crate) fn fail_randomly(&self, seed: u64, odds: u64, faults: &[Fault]) {
        self.plan(Plan::Random(Rng::new(seed), odds, faults.to_vec()));
    }

    /// Requests since the plan was set.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(SeqCst)
    }

    fn next(&self) -> Option<Fault> {
        let number = self.0.requests.fetch_add(1, SeqCst);
        match &mut *self.0.plan.lock().unwrap() {
            Plan::None => None,
            Plan::At(at, fault, lasting) => (number == *at || (*lasting && number > *at)).then_some(*fault),
            Plan::Random(rng, odds, faults) => rng.one_in(*odds).then(|| rng.pick(faults)),
        }
    }

    /// Makes a request without a body in its answer.
    async fn request<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        // Others get a turn, as with a real store.
        tokio::task::yield_now().await;
        match self.next() {
            None | Some(Fault::WrongByte) => request.await,
            Some(Fault::Unanswered) => {
                request.await?;
                Err(refused())
            }
            Some(Fault::Refused | Fault::CutShort) => Err(refused()),
            Some(Fault::Hangs) => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(refused())
            }
            Some(Fault::Forbidden) => {
                Err(Error::PermissionDenied { path: "x".into(), source: "status 403".into() })
            }
        }
    }

    // Without faults, for tests that damage or inspect.

    pub(crate) fn names(&self) -> Vec<String> {
        let listed = wait(self.0.store.list(None).try_collect::<Vec<_>>());
        let mut names: Vec<_> = listed.unwrap().into_iter().map(|meta| meta.location.to_string()).collect();
        names.sort();
        names
    }

    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        wait(async {
            let found = self.0.store.get_opts(&Path::from(name), GetOptions::new()).await?;
            found.bytes().await
        })
        .unwrap()
        .to_vec()
    }

    pub(crate) fn replace(&self, name: &str, bytes: Vec<u8>) {
        wait(self.0.store.put_opts(&Path::from(name), bytes.into(), PutOptions::default())).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        let path = Path::from(name);
        let removed = self.0.store.delete_stream(futures_util::stream::iter([Ok(path)]).boxed());
        wait(removed.try_collect::<Vec<_>>()).unwrap();
    }
}

fn refused() -> Error {
    Error::Generic { store: "faulty", source: "status 500".into() }
}

/// Waits for a future of the store in memory.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.request(self.0.store.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.request(self.0.store.put_multipart_opts(path, options)).await?;
        Ok(Box::new(Parts { inner, store: self.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = match options.head {
            true => return self.request(self.0.store.get_opts(path, options)).await,
            false => self.next(),
        };
        match fault {
            Some(fault @ (Fault::CutShort | Fault::WrongByte)) => {
                let found = self.0.store.get_opts(path, options).await?;
                let (meta, range) = (found.meta.clone(), found.range.clone());
                let (attributes, extensions) = (found.attributes.clone(), found.extensions.clone());
                let mut bytes = found.bytes().await?.to_vec();
                let middle = bytes.len() / 2;
                match (fault, bytes.get_mut(middle)) {
                    (Fault::WrongByte, Some(byte)) => *byte ^= 0x10,
                    _ => bytes.truncate(middle),
                }
                let body = futures_util::stream::iter([Ok(Bytes::from(bytes))]).boxed();
                let payload = GetResultPayload::Stream(body);
                Ok(GetResult { payload, meta, range, attributes, extensions })
            }
            Some(Fault::Unanswered | Fault::Refused) => Err(refused()),
            Some(Fault::Hangs) => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(refused())
            }
            Some(Fault::Forbidden) => {
                Err(Error::PermissionDenied { path: "x".into(), source: "status 403".into() })
            }
            None => self.0.store.get_opts(path, options).await,
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        paths
            .then(move |path| {
                let this = this.clone();
                async move {
                    let path = path?;
                    let one = futures_util::stream::iter([Ok(path.clone())]).boxed();
                    this.request(this.0.store.delete_stream(one).try_collect::<Vec<_>>()).await?;
                    Ok(path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            this.request(async { this.0.store.list(prefix.as_ref()).try_collect::<Vec<_>>().await }).await
        };
        futures_util::stream::once(listed)
            .flat_map(|listed| match listed {
                Ok(objects) => futures_util::stream::iter(objects).map(Ok).boxed(),
                Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
            })
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request(self.0.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.request(self.0.store.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Parts {
    inner: Box<dyn MultipartUpload>,
    store: Faulty,
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, store) = (self.inner.put_part(data), self.store.clone());
        Box::pin(async move { store.request(part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let store = self.store.clone();
        store.request(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let store = self.store.clone();
        store.request(self.inner.abort()).await
    }
}
