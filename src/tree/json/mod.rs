//! The decoded structures as JSON, by the rules of the tree's interface.
