//! The store that a URL leads to, and what it is read with: credentials, region, certificates.
//!
//! For S3 the first credentials that are found count: `anonymous` or the profile of the options, keys in the
//! environment, a profile, a web identity, those of a container, those of the machine (asked for once, for at
//! most a second), none. For the other stores `object_store` finds them in their environment.

use super::aws_profile::{self, Profile};
use super::http::{Counting, Failures};
use super::runtime::runtime;
use super::{Store, chain, client_options, retries};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Stats;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key, AwsCredential, resolve_bucket_region};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::client::{ClientConfigKey, CredentialProvider, StaticCredentialProvider};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{Certificate, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How a store is opened. What is not given is taken from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// Read without credentials, also where there are some.
    pub anonymous: bool,
    /// The profile of AWS.
    pub profile: Option<String>,
    /// Where the store answers, in place of its own host.
    pub endpoint_url: Option<String>,
    /// The region of S3.
    pub region: Option<String>,
    /// Who reads from S3 pays for it.
    pub requester_pays: bool,
    /// The bucket is a part of the host's name, not of the path.
    pub virtual_hosted_style: bool,
    /// A file of certificates in PEM that are trusted beside those of the system.
    pub ca_bundle: Option<PathBuf>,
}

/// How long a mount may take to find out that there is nothing to mount.
const OPENING: Duration = Duration::from_secs(8);
/// How long to wait for the machine's own credentials, and for the region of a bucket.
const MACHINE: Duration = Duration::from_secs(1);
const REGION: Duration = Duration::from_secs(4);
/// How long to wait for credentials from another service.
const CREDENTIALS: Duration = Duration::from_secs(4);

/// What `url` leads to, as [`crate::storage::location::Location`] has it. Reads no object and no listing.
pub fn open(url: &str, options: &StoreOptions, stats: Arc<Stats>) -> Result<Store> {
    let open_until = Instant::now() + OPENING;
    settle_tls();
    let failures = Arc::new(Failures::default());
    let opening = Opening {
        url,
        options,
        stats: &stats,
        failures: &failures,
    };
    let opened = opening.open();
    let Opened {
        objects,
        pages,
        prefix,
        unsigned,
    } = opened.map_err(|error| error.in_file(url))?;
    if unsigned {
        log::debug!("{url}: read without credentials");
    }
    Ok(Store {
        objects,
        pages,
        prefix,
        url: url.to_owned(),
        unsigned,
        open_until,
        failures,
    })
}

/// Chooses the TLS library. Without it the first client would panic.
fn settle_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::ring::default_provider()
            .install_default()
            .is_err()
        {
            log::debug!("the TLS library was chosen before");
        }
    });
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// A store that is about to be opened.
struct Opening<'a> {
    url: &'a str,
    options: &'a StoreOptions,
    stats: &'a Arc<Stats>,
    failures: &'a Arc<Failures>,
}

/// What was opened.
struct Opened {
    objects: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    prefix: Key,
    unsigned: bool,
}

impl Opened {
    /// A store that lists page by page.
    fn by_pages(store: impl ObjectStore + PaginatedListStore, prefix: Key, unsigned: bool) -> Opened {
        let store = Arc::new(store);
        Opened {
            objects: store.clone(),
            pages: Some(store),
            prefix,
            unsigned,
        }
    }
}

impl Opening<'_> {
    fn open(&self) -> Result<Opened> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let kind = match scheme {
            "s3" | "s3a" => ObjectStoreScheme::AmazonS3,
            "gs" => ObjectStoreScheme::GoogleCloudStorage,
            "az" | "azure" | "adl" | "abfs" | "abfss" => ObjectStoreScheme::MicrosoftAzure,
            "http" | "https" => return self.web(),
            _ => return Err(wrong(format!("unknown scheme `{scheme}`"))),
        };
        // Keys are taken literally, as in TileDB: `%20` is three characters.
        let prefix = Key::parse(path).map_err(|error| wrong(format!("not a valid key: {error}")))?;
        match kind {
            ObjectStoreScheme::AmazonS3 => {
                self.s3(AmazonS3Builder::from_env().with_bucket_name(authority), prefix)
            }
            ObjectStoreScheme::GoogleCloudStorage => self.google(authority, prefix),
            _ => self.azure(&format!("{scheme}://{authority}/"), prefix),
        }
    }

    /// `http://` and `https://`: a store that is known by its host, or a server that lists by WebDAV.
    fn web(&self) -> Result<Opened> {
        let url: reqwest::Url = self
            .url
            .parse()
            .map_err(|error| wrong(format!("not a valid URL: {error}")))?;
        let (kind, prefix) = ObjectStoreScheme::parse(&url).map_err(|error| wrong(error.to_string()))?;
        match kind {
            ObjectStoreScheme::AmazonS3 => self.s3(AmazonS3Builder::from_env().with_url(self.url), prefix),
            ObjectStoreScheme::MicrosoftAzure => self.azure(self.url, prefix),
            _ => {
                self.refuse_those_of_s3("a web server")?;
                if self.options.endpoint_url.is_some() {
                    return Err(wrong("the option `endpoint_url` is not for a web server"));
                }
                let host = url.origin().ascii_serialization();
                let builder = HttpBuilder::new()
                    .with_url(&host)
                    .with_retry(retries())
                    .with_client_options(self.client_options(&host, |_| None)?)
                    .with_http_connector(self.connector());
                let store = builder.build().map_err(|error| wrong(chain(&error)))?;
                Ok(Opened {
                    objects: Arc::new(store),
                    pages: None,
                    prefix,
                    unsigned: true,
                })
            }
        }
    }

    fn connector(&self) -> Counting {
        Counting::new(self.stats.clone(), self.failures.clone())
    }

    fn refuse_those_of_s3(&self, store: &str) -> Result<()> {
        let given = [
            ("profile", self.options.profile.is_some()),
            ("region", self.options.region.is_some()),
            ("requester_pays", self.options.requester_pays),
            ("virtual_hosted_style", self.options.virtual_hosted_style),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(wrong(format!(
                "the option `{name}` is for S3 only, but the source is on {store}"
            ))),
            None => Ok(()),
        }
    }

    /// How the connections to `endpoint` are made. `configured` gives what the environment says for this
    /// store.
    fn client_options(
        &self,
        endpoint: &str,
        configured: impl Fn(ClientConfigKey) -> Option<String>,
    ) -> Result<ClientOptions> {
        let mut client = client_options();
        for key in [
            ClientConfigKey::AllowHttp,
            ClientConfigKey::ProxyUrl,
            ClientConfigKey::ProxyExcludes,
            ClientConfigKey::ProxyCaCertificate,
        ] {
            if let Some(value) = configured(key) {
                client = client.with_config(key, value);
            }
        }
        if endpoint.to_ascii_lowercase().starts_with("http://") {
            client = client.with_allow_http(true);
        }
        let bundle = self.options.ca_bundle.clone();
        if let Some(path) = bundle.or_else(|| variable("AWS_CA_BUNDLE").map(PathBuf::from)) {
            for certificate in certificates(&path)? {
                client = client.with_root_certificate(certificate);
            }
        }
        Ok(client)
    }

    /// S3 and what speaks its language.
    fn s3(&self, builder: AmazonS3Builder, prefix: Key) -> Result<Opened> {
        let options = self.options;
        let mut builder = builder;
        // As AWS's own programs have it.
        if let Some(endpoint) = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            builder = builder.with_metadata_endpoint(endpoint);
        }
        let is_set = |builder: &AmazonS3Builder, key: S3Key| {
            builder
                .get_config_value(&key)
                .is_some_and(|value| !value.is_empty())
        };
        // The variable that says where to ask for credentials.
        let mut elsewhere = None;
        let mut unsigned =
            options.anonymous || builder.get_config_value(&S3Key::SkipSignature).as_deref() == Some("true");
        let has_keys = is_set(&builder, S3Key::AccessKeyId) || is_set(&builder, S3Key::SecretAccessKey);
        let by_environment = has_keys && options.profile.is_none();
        // Without signatures the profile tells region and endpoint alone, and may be any.
        let profile = match aws_profile::load(options.profile.as_deref(), &variable) {
            Ok(profile) => profile.unwrap_or_default(),
            Err(_) if unsigned || by_environment => Profile::default(),
            Err(message) => return Err(Error::new(ErrorKind::Io(libc::EACCES), message)),
        };
        builder = set_location(builder, options, &profile);
        let endpoint = builder
            .get_config_value(&S3Key::S3Endpoint)
            .or_else(|| builder.get_config_value(&S3Key::Endpoint));
        let client = self.client_options(endpoint.as_deref().unwrap_or_default(), |key| {
            builder.get_config_value(&S3Key::Client(key))
        })?;
        if options.requester_pays {
            builder = builder.with_request_payer(true);
        }
        builder = builder.with_client_options(client.clone());
        if !unsigned && !by_environment {
            match (profile.keys, profile.web_identity) {
                (Some((key_id, secret_key)), _) => {
                    let token = profile.token;
                    builder =
                        builder.with_credentials(Arc::new(StaticCredentialProvider::new(AwsCredential {
                            key_id,
                            secret_key,
                            token,
                        })));
                }
                (None, Some((file, role))) => {
                    builder = builder
                        .with_config(S3Key::WebIdentityTokenFile, file)
                        .with_config(S3Key::RoleArn, role);
                    elsewhere = Some("web_identity_token_file");
                }
                (None, None) => {
                    let all_set = |keys: &[S3Key]| keys.iter().all(|key| is_set(&builder, *key));
                    let full_uri = [
                        S3Key::ContainerCredentialsFullUri,
                        S3Key::ContainerAuthorizationTokenFile,
                    ];
                    let ways: [(&str, &[S3Key]); 3] = [
                        (
                            "AWS_WEB_IDENTITY_TOKEN_FILE",
                            &[S3Key::WebIdentityTokenFile, S3Key::RoleArn],
                        ),
                        (
                            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                            &[S3Key::ContainerCredentialsRelativeUri],
                        ),
                        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &full_uri),
                    ];
                    let way = ways.iter().find(|(_, keys)| all_set(keys));
                    elsewhere = way.map(|(name, _)| *name);
                    let disabled = variable("AWS_EC2_METADATA_DISABLED");
                    let disabled = disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
                    unsigned = elsewhere.is_none()
                        && (disabled || {
                            let probe = builder
                                .clone()
                                .with_region("us-east-1")
                                .with_retry(once())
                                .build();
                            let probe = probe.map_err(|error| wrong(chain(&error)))?;
                            !answers(&**probe.credentials())?
                        });
                }
            }
        }
        if !is_set(&builder, S3Key::Region) && endpoint.is_none() && !self.url.starts_with("http") {
            let bucket = builder.get_config_value(&S3Key::Bucket).unwrap_or_default();
            builder = builder.with_region(self.region(&bucket, &client)?);
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(|error| wrong(chain(&error)))?;
        if let Some(name) = elsewhere.filter(|_| !unsigned) {
            self.ask(name, &**store.credentials())?;
        }
        Ok(Opened::by_pages(store, prefix, unsigned))
    }

    /// Fetches the credentials that the variable `name` points to; the store keeps them.
    fn ask<C>(&self, name: &str, provider: &dyn CredentialProvider<Credential = C>) -> Result<()> {
        let asked = async { timeout(CREDENTIALS, provider.get_credential()).await };
        let cause = match runtime()?.block_on(asked) {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => chain(&error),
            Err(_) => self.failures.last().unwrap_or_else(|| "no answer".to_owned()),
        };
        let message = format!("cannot get the credentials of `{name}`: {cause}");
        Err(Error::new(ErrorKind::Io(libc::EACCES), message))
    }

    /// The region of a bucket of AWS.
    fn region(&self, bucket: &str, client: &ClientOptions) -> Result<String> {
        self.stats.head_requests.add(1);
        let asked = async { timeout(REGION, resolve_bucket_region(bucket, client)).await };
        let hint = "give it by the option `region` or AWS_REGION";
        match runtime()?.block_on(asked) {
            Ok(Ok(region)) => Ok(region),
            Ok(Err(error)) if error.to_string().contains("not found") => {
                Err(Error::not_found("not found: there is no such bucket"))
            }
            Ok(Err(error)) => Err(Error::new(
                ErrorKind::Io(libc::EIO),
                format!("cannot find the region of the bucket ({}): {hint}", chain(&error)),
            )),
            Err(_) => Err(Error::new(
                ErrorKind::Io(libc::ETIMEDOUT),
                format!("cannot find the region of the bucket (no answer): {hint}"),
            )),
        }
    }

    /// Google Cloud Storage.
    fn google(&self, bucket: &str, prefix: Key) -> Result<Opened> {
        self.refuse_those_of_s3("Google Cloud Storage")?;
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &self.options.endpoint_url {
            builder = builder.with_config(GoogleKey::BaseUrl, endpoint.trim_end_matches('/'));
        }
        let endpoint = builder.get_config_value(&GoogleKey::BaseUrl).unwrap_or_default();
        let client =
            self.client_options(&endpoint, |key| builder.get_config_value(&GoogleKey::Client(key)))?;
        builder = builder.with_client_options(client);
        let skip = builder.get_config_value(&GoogleKey::SkipSignature);
        let mut unsigned = self.options.anonymous || skip.as_deref() == Some("true");
        if !unsigned {
            let keys = [
                GoogleKey::ServiceAccount,
                GoogleKey::ServiceAccountKey,
                GoogleKey::ApplicationCredentials,
                GoogleKey::BearerToken,
            ];
            let of_user = variable("HOME")
                .map(|home| Path::new(&home).join(".config/gcloud/application_default_credentials.json"));
            let given = keys.iter().any(|key| builder.get_config_value(key).is_some())
                || of_user.is_some_and(|path| path.exists());
            if !given {
                let probe = builder.clone().with_retry(once()).build();
                let probe = probe.map_err(|error| wrong(chain(&error)))?;
                unsigned = !answers(&**probe.credentials())?;
            }
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(|error| wrong(chain(&error)))?;
        Ok(Opened::by_pages(store, prefix, unsigned))
    }

    /// Azure's Blob Storage and Data Lake.
    fn azure(&self, url: &str, prefix: Key) -> Result<Opened> {
        self.refuse_those_of_s3("Azure")?;
        let mut builder = MicrosoftAzureBuilder::from_env();
        // As Azure's own programs and TileDB call them.
        for (key, name) in [
            (AzureKey::AccountName, "AZURE_STORAGE_ACCOUNT"),
            (AzureKey::AccessKey, "AZURE_STORAGE_KEY"),
        ] {
            if let (None, Some(value)) = (builder.get_config_value(&key), variable(name)) {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = &self.options.endpoint_url {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let endpoint = builder.get_config_value(&AzureKey::Endpoint).unwrap_or_default();
        let client =
            self.client_options(&endpoint, |key| builder.get_config_value(&AzureKey::Client(key)))?;
        builder = builder.with_url(url).with_client_options(client);
        let is_true = |key: AzureKey| builder.get_config_value(&key).as_deref() == Some("true");
        let mut unsigned = self.options.anonymous || is_true(AzureKey::SkipSignature);
        let explain_missing = |error: object_store::Error| {
            let text = chain(&error);
            wrong(match text.contains("Account must be specified") {
                true => "the URL names no account: give it as \
                 abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/… or by AZURE_STORAGE_ACCOUNT_NAME"
                    .to_owned(),
                false => text,
            })
        };
        if !unsigned {
            let keys = [
                AzureKey::AccessKey,
                AzureKey::SasKey,
                AzureKey::Token,
                AzureKey::ClientId,
                AzureKey::ClientSecret,
                AzureKey::FederatedTokenFile,
                AzureKey::MsiEndpoint,
                AzureKey::CredentialType,
            ];
            let given = keys.iter().any(|key| builder.get_config_value(key).is_some())
                || is_true(AzureKey::UseAzureCli)
                || is_true(AzureKey::UseEmulator);
            if !given {
                let probe = builder
                    .clone()
                    .with_retry(once())
                    .build()
                    .map_err(explain_missing)?;
                unsigned = !answers(&**probe.credentials())?;
            }
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(explain_missing)?;
        Ok(Opened::by_pages(store, prefix, unsigned))
    }
}

/// Sets region and endpoint: those of the options, of the environment, of the profile.
fn set_location(mut builder: AmazonS3Builder, options: &StoreOptions, profile: &Profile) -> AmazonS3Builder {
    let region = builder.get_config_value(&S3Key::Region);
    if let Some(region) = options
        .region
        .clone()
        .or(region)
        .or_else(|| profile.region.clone())
    {
        builder = builder.with_region(region);
    }
    let endpoint = builder
        .get_config_value(&S3Key::S3Endpoint)
        .or_else(|| builder.get_config_value(&S3Key::Endpoint));
    let endpoint = options.endpoint_url.clone().or(endpoint);
    let Some(endpoint) = endpoint.or_else(|| profile.endpoint_url.clone()) else {
        return match options.virtual_hosted_style {
            true => builder.with_virtual_hosted_style_request(true),
            false => builder,
        };
    };
    let endpoint = match options.virtual_hosted_style {
        true => {
            builder = builder.with_virtual_hosted_style_request(true);
            let bucket = builder.get_config_value(&S3Key::Bucket).unwrap_or_default();
            with_bucket(&endpoint, &bucket)
        }
        false => endpoint,
    };
    builder.with_config(S3Key::S3Endpoint, endpoint)
}

/// An endpoint with the bucket in its host's name.
fn with_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

/// Nothing is tried again.
fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: MACHINE,
        ..RetryConfig::default()
    }
}

/// Whether this machine has credentials of its own.
fn answers<C>(provider: &dyn CredentialProvider<Credential = C>) -> Result<bool> {
    let asked = runtime()?.block_on(async { timeout(MACHINE, provider.get_credential()).await });
    match asked {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => {
            log::debug!("this machine has no credentials of its own: {}", chain(&error));
            Ok(false)
        }
        Err(_) => Ok(false),
    }
}

/// The certificates in a file.
fn certificates(path: &Path) -> Result<Vec<Certificate>> {
    let pem = std::fs::read(path).map_err(|error| Error::io(&error).in_file(path.display()))?;
    let certificates =
        Certificate::from_pem_bundle(&pem).map_err(|error| wrong(chain(&error)).in_file(path.display()))?;
    match certificates.is_empty() {
        true => Err(wrong("the file contains no PEM certificate").in_file(path.display())),
        false => Ok(certificates),
    }
}
