//! Segments, nodes and clients as network namespaces; probes and observers on them.
