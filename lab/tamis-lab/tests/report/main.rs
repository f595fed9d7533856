//! The page of results: as text, and as a browser shows it.

mod browser;
mod chromium;
mod measured;
mod page;
mod samples;
