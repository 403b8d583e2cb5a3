//! Opens the store of a URL: finds credentials, region and certificates.
//!
//! S3 uses the first of: the options `anonymous` or `profile`; keys in the environment; the profile of the
//! environment; a web identity; container credentials; instance metadata (asked once, for at most one
//! second); no credentials. For other stores, `object_store` reads their environment.

use super::aws_profile::{self, Profile};
use super::http::{Connector, Failures};
use super::redirects::is_region;
use super::runtime::runtime;
use super::{Store, chain, retries};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::stats::Stats;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key, AwsCredential};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::client::{
    ClientConfigKey, CredentialProvider, HttpConnector, HttpError, HttpRequest, HttpRequestBody,
    StaticCredentialProvider,
};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use reqwest::{Certificate, StatusCode};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Options for opening a store. The defaults come from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Read without credentials, even if there are some.
    pub anonymous: bool,
    /// The AWS profile.
    pub profile: Option<String>,
    /// URL of the store, in place of its default host.
    pub endpoint_url: Option<String>,
    /// The S3 region.
    pub region: Option<String>,
    /// Accept the charges for reading from a requester-pays bucket.
    pub requester_pays: bool,
    /// Put the bucket into the host name instead of the path.
    pub virtual_hosted_style: bool,
    /// A PEM file of certificates to trust in addition to those of the system.
    pub ca_bundle: Option<PathBuf>,
}

/// Timeouts for opening a source up to the first page of its listing, and for each of the others.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(8);
/// Timeout for all pages of it: some hundreds.
pub(super) const LISTING_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeouts for instance metadata, and for the region of a bucket.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
const REGION_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout for credentials from another service.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(4);

/// Opens the store of a parsed [`Remote`](crate::storage::location::Location) `url`. Reads no objects.
pub fn open(url: &str, options: &StoreOptions, stats: Arc<Stats>) -> Result<Store> {
    install_tls_provider();
    let opened = options.certificates().and_then(|certificates| {
        let opening = Opening {
            url,
            options,
            certificates,
            stats: &stats,
            open_until: Instant::now() + OPEN_TIMEOUT,
            failures: Arc::default(),
        };
        opening.open()
    });
    let store = opened.map_err(|error| error.in_file(url))?;
    if store.unsigned {
        log::debug!("{url}: read without credentials");
    }
    Ok(store)
}

impl Store {
    /// The prefix at `url` of the same store.
    pub fn at(&self, url: &str) -> Result<Store> {
        let (_, prefix) = place(url).map_err(|error| error.in_file(url))?;
        Ok(Store {
            prefix,
            url: url.to_owned(),
            open_until: Instant::now() + OPEN_TIMEOUT,
            ..self.clone()
        })
    }
}

/// The kind of the store of a parsed [`Remote`](crate::storage::location::Location) `url`, and the prefix in
/// it. An `http://` or `https://` URL is of a store with a known host name, or of a WebDAV server.
fn place(url: &str) -> Result<(ObjectStoreScheme, Key)> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let kind = match scheme {
        "s3" | "s3a" => ObjectStoreScheme::AmazonS3,
        "gs" => ObjectStoreScheme::GoogleCloudStorage,
        "az" | "azure" | "adl" | "abfs" | "abfss" => ObjectStoreScheme::MicrosoftAzure,
        "http" | "https" => {
            let url = url.parse();
            let url = url.map_err(|error| invalid(format!("not a valid URL: {error}")))?;
            return ObjectStoreScheme::parse(&url).map_err(|error| invalid(error.to_string()));
        }
        _ => return Err(invalid(format!("unknown scheme `{scheme}`"))),
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    // `Key` drops a slash at the beginning.
    if path.starts_with('/') {
        return Err(invalid("not a valid key: it begins with a slash"));
    }
    // Keys are not percent-encoded, as in TileDB.
    let prefix = Key::parse(path).map_err(|error| invalid(format!("not a valid key: {error}")))?;
    Ok((kind, prefix))
}

/// Sets the default TLS provider, without which the first client would panic.
fn install_tls_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::ring::default_provider()
            .install_default()
            .is_err()
        {
            log::debug!("a TLS provider is already installed");
        }
    });
}

/// A non-empty environment variable.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The settings in environment variables whose names begin with `prefix`. Empty ones count as none, as for
/// the programs of the stores.
fn settings<K: FromStr>(prefix: &'static str) -> impl Iterator<Item = (K, String)> {
    std::env::vars_os().filter_map(move |(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with(prefix))?;
        let value = value.into_string().ok().filter(|value| !value.is_empty())?;
        Some((name.to_ascii_lowercase().parse().ok()?, value))
    })
}

/// Whether a setting says yes, in one of the ways that `object_store` takes.
pub(super) fn is_yes(setting: Option<String>) -> bool {
    let setting = setting.map(|setting| setting.to_ascii_lowercase());
    matches!(setting.as_deref(), Some("1" | "true" | "on" | "yes" | "y"))
}

/// What the environment says of S3.
fn aws_of_environment() -> AmazonS3Builder {
    settings("AWS_").fold(AmazonS3Builder::new(), |builder, (key, value)| {
        builder.with_config(key, value)
    })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// A store that is being opened.
struct Opening<'a> {
    url: &'a str,
    options: &'a StoreOptions,
    certificates: Vec<Certificate>,
    stats: &'a Arc<Stats>,
    open_until: Instant,
    failures: Arc<Failures>,
}

impl Opening<'_> {
    /// A store with listings page by page.
    fn by_pages(&self, store: impl ObjectStore + PaginatedListStore, prefix: Key, unsigned: bool) -> Store {
        let store = Arc::new(store);
        Store {
            pages: Some(store.clone()),
            ..self.opened(store, prefix, unsigned)
        }
    }

    /// A store without such listings.
    fn opened(&self, objects: Arc<dyn ObjectStore>, prefix: Key, unsigned: bool) -> Store {
        Store {
            objects,
            pages: None,
            ordered: true,
            prefix,
            url: self.url.to_owned(),
            unsigned,
            open_until: self.open_until,
            failures: self.failures.clone(),
        }
    }

    fn open(&self) -> Result<Store> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
        let (kind, prefix) = place(self.url)?;
        let is_web = scheme.starts_with("http");
        match kind {
            ObjectStoreScheme::AmazonS3 if is_web => self.s3(aws_of_environment().with_url(self.url), prefix),
            ObjectStoreScheme::AmazonS3 => self.s3(aws_of_environment().with_bucket_name(authority), prefix),
            ObjectStoreScheme::GoogleCloudStorage => self.google(authority, prefix),
            ObjectStoreScheme::MicrosoftAzure if is_web => self.azure(self.url, prefix),
            ObjectStoreScheme::MicrosoftAzure => self.azure(&format!("{scheme}://{authority}/"), prefix),
            _ => self.web(prefix),
        }
    }

    /// A WebDAV server.
    fn web(&self, prefix: Key) -> Result<Store> {
        self.refuse_s3_options("a web server")?;
        if self.options.endpoint_url.is_some() {
            return Err(invalid("the option `endpoint_url` is not for a web server"));
        }
        let url: reqwest::Url = self.url.parse().expect("it is of a web server");
        let host = url.origin().ascii_serialization();
        let builder = HttpBuilder::new()
            .with_url(&host)
            .with_retry(retries())
            .with_client_options(self.client_options(&host, |_| None)?)
            .with_http_connector(self.connector());
        let store = builder.build().map_err(|error| invalid(chain(&error)))?;
        Ok(self.opened(Arc::new(store), prefix, true))
    }

    fn connector(&self) -> Connector {
        Connector {
            certificates: self.certificates.clone(),
            stats: self.stats.clone(),
            failures: self.failures.clone(),
        }
    }

    /// The connector for questions whose failures do not matter.
    fn probing(&self) -> Connector {
        Connector {
            failures: Arc::default(),
            ..self.connector()
        }
    }

    fn refuse_s3_options(&self, store: &str) -> Result<()> {
        let given = [
            ("profile", self.options.profile.is_some()),
            ("region", self.options.region.is_some()),
            ("requester_pays", self.options.requester_pays),
            ("virtual_hosted_style", self.options.virtual_hosted_style),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(invalid(format!(
                "the option `{name}` is for S3 only, but the source is on {store}"
            ))),
            None => Ok(()),
        }
    }

    /// Settings for connections to `endpoint`, the store's own if that is empty. `configured` looks up the
    /// store's environment variables. Fails if `endpoint` is not the URL of a web server.
    fn client_options(
        &self,
        endpoint: &str,
        configured: impl Fn(ClientConfigKey) -> Option<String>,
    ) -> Result<ClientOptions> {
        let scheme = endpoint.to_ascii_lowercase();
        let is_http = scheme.starts_with("http://");
        if !endpoint.is_empty() && !is_http && !scheme.starts_with("https://") {
            return Err(invalid(
                "the endpoint, of the environment or a profile, does not begin with http:// or https://",
            ));
        }
        let mut client = ClientOptions::new();
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
        if is_http {
            client = client.with_allow_http(true);
        }
        Ok(client)
    }

    /// S3 and compatible stores.
    fn s3(&self, builder: AmazonS3Builder, prefix: Key) -> Result<Store> {
        let options = self.options;
        let mut builder = builder;
        // The name that the AWS SDKs use.
        if let Some(endpoint) = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            builder = builder.with_metadata_endpoint(endpoint);
        }
        let is_set = |builder: &AmazonS3Builder, key: S3Key| {
            builder
                .get_config_value(&key)
                .is_some_and(|value| !value.is_empty())
        };
        // The environment variable or setting that points to a credentials service.
        let mut elsewhere = None;
        let mut unsigned = options.anonymous || is_yes(builder.get_config_value(&S3Key::SkipSignature));
        let has_keys = is_set(&builder, S3Key::AccessKeyId) || is_set(&builder, S3Key::SecretAccessKey);
        let by_environment = has_keys && options.profile.is_none();
        // Without signatures or with keys, the profile matters only for region and endpoint.
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
                                .with_retry(no_retries())
                                .with_http_connector(self.probing())
                                .build();
                            let probe = probe.map_err(|error| invalid(chain(&error)))?;
                            !has_credentials(&**probe.credentials())?
                        });
                }
            }
        }
        let bucket = builder.get_config_value(&S3Key::Bucket).unwrap_or_default();
        if !is_set(&builder, S3Key::Region) && endpoint.is_none() && !self.url.starts_with("http") {
            builder = builder.with_region(self.region(&bucket, &client)?);
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(|error| invalid(chain(&error)))?;
        if let Some(name) = elsewhere.filter(|_| !unsigned) {
            self.fetch_credentials(name, &**store.credentials())?;
        }
        Ok(Store {
            ordered: !is_directory_bucket(&bucket),
            ..self.by_pages(store, prefix, unsigned)
        })
    }

    /// Fetches credentials from the service in the setting `name`, to fail early; the store caches them.
    fn fetch_credentials<C>(
        &self,
        name: &str,
        provider: &dyn CredentialProvider<Credential = C>,
    ) -> Result<()> {
        let asked = async { timeout(CREDENTIALS_TIMEOUT, provider.get_credential()).await };
        let cause = match runtime()?.block_on(asked) {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => chain(&error),
            Err(_) => self.failures.last().unwrap_or_else(|| "no answer".to_owned()),
        };
        let message = format!("cannot get the credentials of `{name}`: {cause}");
        Err(Error::new(ErrorKind::Io(libc::EACCES), message))
    }

    /// The region of an AWS bucket.
    fn region(&self, bucket: &str, client: &ClientOptions) -> Result<String> {
        let hint = "give it by the option `region` or AWS_REGION";
        let client = self
            .connector()
            .connect(client)
            .map_err(|error| invalid(chain(&error)))?;
        let asked = async {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = reqwest::Method::HEAD;
            let unusable = |error| HttpError::new(object_store::client::HttpErrorKind::Unknown, error);
            *request.uri_mut() = bucket_url(bucket).parse().map_err(unusable)?;
            client.execute(request).await
        };
        let failed = |errno: i32, cause: &str| {
            let message = format!("cannot find the region of the bucket ({cause}): {hint}");
            Err(Error::new(ErrorKind::Io(errno), message))
        };
        match runtime()?.block_on(async { timeout(REGION_TIMEOUT, asked).await }) {
            Ok(Ok(answer)) if answer.status() == StatusCode::NOT_FOUND => {
                Err(Error::not_found("not found: there is no such bucket"))
            }
            Ok(Ok(answer)) => {
                let region = answer.headers().get("x-amz-bucket-region");
                let region = region.and_then(|region| region.to_str().ok());
                // It becomes part of the name of a host that gets credentials.
                match region.filter(|region| is_region(region)) {
                    Some(region) => Ok(region.to_owned()),
                    None => failed(libc::EIO, "the answer names none"),
                }
            }
            Ok(Err(error)) => failed(libc::EIO, &chain(&error)),
            Err(_) => failed(libc::ETIMEDOUT, "no answer"),
        }
    }

    /// Google Cloud Storage.
    fn google(&self, bucket: &str, prefix: Key) -> Result<Store> {
        self.refuse_s3_options("Google Cloud Storage")?;
        let mut builder = variable("SERVICE_ACCOUNT")
            .map(|file| (GoogleKey::ServiceAccount, file))
            .into_iter()
            .chain(settings("GOOGLE_"))
            .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| {
                builder.with_config(key, value)
            })
            .with_bucket_name(bucket);
        if let Some(endpoint) = &self.options.endpoint_url {
            builder = builder.with_config(GoogleKey::BaseUrl, endpoint.trim_end_matches('/'));
        }
        let endpoint = builder.get_config_value(&GoogleKey::BaseUrl).unwrap_or_default();
        let client =
            self.client_options(&endpoint, |key| builder.get_config_value(&GoogleKey::Client(key)))?;
        builder = builder.with_client_options(client);
        let skip = builder.get_config_value(&GoogleKey::SkipSignature);
        let mut unsigned = self.options.anonymous || is_yes(skip);
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
                let probe = builder
                    .clone()
                    .with_retry(no_retries())
                    .with_http_connector(self.probing())
                    .build();
                let probe = probe.map_err(|error| invalid(chain(&error)))?;
                unsigned = !has_credentials(&**probe.credentials())?;
            }
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(|error| invalid(chain(&error)))?;
        Ok(self.by_pages(store, prefix, unsigned))
    }

    /// Azure Blob Storage and Data Lake Storage.
    fn azure(&self, url: &str, prefix: Key) -> Result<Store> {
        self.refuse_s3_options("Azure")?;
        let endpoint = variable("IDENTITY_ENDPOINT").map(|endpoint| (AzureKey::MsiEndpoint, endpoint));
        let mut builder = settings("AZURE_")
            .chain(endpoint)
            .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| {
                builder.with_config(key, value)
            });
        // The names that Azure's own programs and TileDB use.
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
        let is_true = |key: AzureKey| is_yes(builder.get_config_value(&key));
        let mut unsigned = self.options.anonymous || is_true(AzureKey::SkipSignature);
        let explain_missing = |error: object_store::Error| {
            let text = chain(&error);
            invalid(match text.contains("Account must be specified") {
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
                    .with_retry(no_retries())
                    .with_http_connector(self.probing())
                    .build()
                    .map_err(explain_missing)?;
                unsigned = !has_credentials(&**probe.credentials())?;
            }
        }
        let builder = builder
            .with_skip_signature(unsigned)
            .with_retry(retries())
            .with_http_connector(self.connector());
        let store = builder.build().map_err(explain_missing)?;
        Ok(self.by_pages(store, prefix, unsigned))
    }
}

/// Sets region and endpoint, from the options, else the environment, else the profile.
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
    let virtual_hosted =
        options.virtual_hosted_style || is_yes(builder.get_config_value(&S3Key::VirtualHostedStyleRequest));
    let Some(endpoint) = endpoint.or_else(|| profile.endpoint_url.clone()) else {
        return match virtual_hosted {
            true => builder.with_virtual_hosted_style_request(true),
            false => builder,
        };
    };
    let endpoint = match virtual_hosted {
        true => {
            builder = builder.with_virtual_hosted_style_request(true);
            let bucket = builder.get_config_value(&S3Key::Bucket).unwrap_or_default();
            with_bucket(&endpoint, &bucket)
        }
        false => endpoint,
    };
    builder.with_config(S3Key::S3Endpoint, endpoint)
}

/// `endpoint` with the bucket in its host name, without a slash at its end.
fn with_bucket(endpoint: &str, bucket: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    match endpoint.split_once("://") {
        Some((scheme, host)) if !bucket.is_empty() && !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

/// Where Amazon S3 tells the region of `bucket`. Its certificate is for names with one label before its own,
/// and names of hosts have no capitals, as old buckets may.
fn bucket_url(bucket: &str) -> String {
    let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match bucket.bytes().all(is_label) {
        true => format!("https://{bucket}.s3.amazonaws.com"),
        false => format!("https://s3.amazonaws.com/{bucket}"),
    }
}

/// Whether S3 lists this bucket in no order: it is a directory bucket (S3 Express One Zone), which its name
/// tells, or that of an access point to it.
fn is_directory_bucket(bucket: &str) -> bool {
    bucket.ends_with("--x-s3") || bucket.ends_with("--xa-s3")
}

/// No retries.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: METADATA_TIMEOUT,
        ..RetryConfig::default()
    }
}

/// Whether instance metadata gives credentials within [`METADATA_TIMEOUT`].
fn has_credentials<C>(provider: &dyn CredentialProvider<Credential = C>) -> Result<bool> {
    let asked = runtime()?.block_on(async { timeout(METADATA_TIMEOUT, provider.get_credential()).await });
    match asked {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => {
            log::debug!("this machine has no credentials of its own: {}", chain(&error));
            Ok(false)
        }
        Err(_) => Ok(false),
    }
}

impl StoreOptions {
    /// The certificates to trust in addition to those of the system, from a PEM file. Fails if it has none.
    fn certificates(&self) -> Result<Vec<Certificate>> {
        let bundle = self.ca_bundle.clone();
        let Some(path) = bundle.or_else(|| variable("AWS_CA_BUNDLE").map(PathBuf::from)) else {
            return Ok(Vec::new());
        };
        let pem = std::fs::read(&path).map_err(|error| Error::io(&error).in_file(path.display()))?;
        let certificates = Certificate::from_pem_bundle(&pem)
            .map_err(|error| invalid(chain(&error)).in_file(path.display()))?;
        match certificates.is_empty() {
            true => Err(invalid("the file contains no PEM certificate").in_file(path.display())),
            false => Ok(certificates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_of_old_buckets_is_asked_for_by_path() {
        assert_eq!(bucket_url("a-b1"), "https://a-b1.s3.amazonaws.com");
        for bucket in ["a.b", "Old", "old_one"] {
            assert_eq!(bucket_url(bucket), format!("https://s3.amazonaws.com/{bucket}"));
        }
    }

    #[test]
    fn directory_buckets_are_known_by_their_names() {
        for (bucket, is) in [
            ("b--use1-az5--x-s3", true),
            ("b--use1-az5--xa-s3", true),
            ("b-x-s3", false),
        ] {
            assert_eq!(is_directory_bucket(bucket), is, "{bucket}");
        }
    }

    #[test]
    fn each_part_of_a_url_has_its_prefix() {
        for (url, wanted) in [
            ("s3://b/a%20b/c", "a%20b/c"),
            ("s3://b", ""),
            ("https://h/a%20b%2Fc", "a b/c"),
            ("https://h/a/../b", "b"),
            ("https://b.s3.eu-west-1.amazonaws.com/a%20b", "a b"),
            ("https://s3.eu-west-1.amazonaws.com/b/a", "a"),
        ] {
            assert_eq!(place(url).unwrap().1.as_ref(), wanted, "{url}");
        }
    }

    #[test]
    fn each_prefix_of_a_store_is_waited_for_anew() {
        let mut store = open("https://h/a%20b/c", &StoreOptions::default(), Arc::default()).unwrap();
        store.open_until = Instant::now();
        let above = store.at("https://h/a%20b").unwrap();
        assert_eq!((above.prefix.as_ref(), &*above.url), ("a b", "https://h/a%20b"));
        assert!(above.open_until > store.open_until + OPEN_TIMEOUT / 2);
    }

    #[test]
    fn settings_say_yes_as_object_store_takes_it() {
        let key = ClientConfigKey::AllowHttp;
        for text in [
            "1", "true", "True", "on", "YES", "y", "0", "false", "off", "no", "n",
        ] {
            let setting = ClientOptions::new().with_config(key, text);
            let yes = matches!(text, "1" | "true" | "True" | "on" | "YES" | "y");
            assert_eq!(is_yes(setting.get_config_value(&key)), yes, "{text}");
        }
        assert!(!is_yes(None));
    }

    #[test]
    fn the_bucket_becomes_part_of_the_host_name_whoever_wants_it() {
        for (options, environment, wanted) in [
            (false, None, "http://h:1"),
            (true, None, "http://b.h:1"),
            (false, Some("true"), "http://b.h:1"),
            (false, Some("1"), "http://b.h:1"),
            (false, Some("false"), "http://h:1"),
        ] {
            let mut builder = AmazonS3Builder::new()
                .with_bucket_name("b")
                .with_endpoint("http://h:1");
            if let Some(value) = environment {
                builder = builder.with_config(S3Key::VirtualHostedStyleRequest, value);
            }
            let options = StoreOptions {
                virtual_hosted_style: options,
                ..StoreOptions::default()
            };
            let builder = set_location(builder, &options, &Profile::default());
            let endpoint = builder.get_config_value(&S3Key::S3Endpoint);
            assert_eq!(endpoint.as_deref(), Some(wanted), "{options:?} {environment:?}");
        }
    }

    #[test]
    fn the_bucket_becomes_part_of_the_host_name() {
        for (endpoint, wanted) in [
            ("https://store.net", "https://b.store.net"),
            ("http://store.net:9000/", "http://b.store.net:9000"),
            ("https://b.store.net/", "https://b.store.net"),
        ] {
            assert_eq!(with_bucket(endpoint, "b"), wanted, "{endpoint}");
        }
        // A URL with https:// has the bucket in it, which is not known yet.
        assert_eq!(with_bucket("https://b.store.net", ""), "https://b.store.net");
    }
}
