mod codecs;
mod keyspaces;
