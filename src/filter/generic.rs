//! Generic tiles: the self-describing tiles that hold everything but data.
