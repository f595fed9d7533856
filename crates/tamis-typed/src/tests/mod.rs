mod codecs;
mod expiring;
mod keyspaces;
