//! Digests and tags computed anew, so that changed bytes get past them to the filters behind.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use md5::Md5;
use sha2::{Digest, Sha256};
use tiledbfs::internals::format::pipeline::{Filter, Pipeline};

fn is_seal(filter: &Filter) -> bool {
    matches!(
        filter,
        Filter::ChecksumMd5 | Filter::ChecksumSha256 | Filter::Aes256Gcm
    )
}

/// Applies the checksums and the encryption at the end of `pipeline` to the streams of a chunk as they are
/// before them.
pub fn seal(pipeline: &Pipeline, metadata: &[u8], data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut metadata, mut data) = (metadata.to_vec(), data.to_vec());
    let seals = pipeline.filters.iter().rev().take_while(|f| is_seal(f)).count();
    for filter in &pipeline.filters[pipeline.filters.len() - seals..] {
        match filter {
            Filter::ChecksumMd5 => {
                metadata = digests(&metadata, &data, |bytes| Md5::digest(bytes).to_vec());
            }
            Filter::ChecksumSha256 => {
                metadata = digests(&metadata, &data, |bytes| Sha256::digest(bytes).to_vec());
            }
            _ => (metadata, data) = encrypt(metadata, data),
        }
    }
    (metadata, data)
}

fn digests(metadata: &[u8], data: &[u8], digest: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut out = u32::from(!metadata.is_empty()).to_le_bytes().to_vec();
    out.extend(1u32.to_le_bytes());
    let covered = (!metadata.is_empty()).then_some(metadata);
    for stream in covered.into_iter().chain([data]) {
        out.extend((stream.len() as u64).to_le_bytes());
        out.extend(digest(stream));
    }
    out.extend(metadata);
    out
}

fn encrypt(metadata: Vec<u8>, data: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let cipher = Aes256Gcm::new((&super::KEY).into());
    let iv = [7; 12];
    let mut table = u32::from(!metadata.is_empty()).to_le_bytes().to_vec();
    table.extend(1u32.to_le_bytes());
    let mut out = Vec::new();
    let with_metadata = !metadata.is_empty();
    for mut part in with_metadata.then_some(metadata).into_iter().chain([data]) {
        let tag = cipher
            .encrypt_inout_detached(&Nonce::from(iv), &[], part.as_mut_slice().into())
            .expect("a short text");
        table.extend([(part.len() as u32).to_le_bytes(); 2].concat());
        table.extend(iv);
        table.extend(&tag[..]);
        out.extend(part);
    }
    (table, out)
}
