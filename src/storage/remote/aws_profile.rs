//! AWS profiles, from the files `~/.aws/credentials` and `~/.aws/config`.
//!
//! Supports access keys, web identities, region and endpoint. Profiles that need a browser, another program
//! or another service (SSO, `credential_process`, roles to assume) are an error; its message gives the
//! command that exports their credentials.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The settings of a profile. Without `Debug`, which would show secrets.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    /// `aws_access_key_id`, `aws_secret_access_key`.
    pub keys: Option<(String, String)>,
    /// `aws_session_token`, from the same section as the keys.
    pub token: Option<String>,
    /// `region`.
    pub region: Option<String>,
    /// `endpoint_url`.
    pub endpoint_url: Option<String>,
    /// `web_identity_token_file`, `role_arn`.
    pub web_identity: Option<(String, String)>,
}

/// Longer files are refused.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// Keys of profiles whose credentials come from an unsupported source, and the name of that source.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("credential_process", "another program (credential_process)"),
    ("sso_session", "SSO"),
    ("sso_start_url", "SSO"),
    ("login_session", "a login session"),
    ("source_profile", "a role to assume"),
    ("credential_source", "a role to assume"),
];

/// Loads the profile `name`, else the one that `AWS_PROFILE` names, else `default`. None if no profile is
/// named and there is no `default`. `environment` looks up variables. The error is a message for the user.
pub(super) fn load(
    name: Option<&str>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Profile>, String> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    let wanted = name.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
    let name = wanted.as_deref().unwrap_or("default");
    let file = |name: &str, rest: &str| {
        let place = variable(name).map(PathBuf::from);
        place.or_else(|| Some(home(&variable)?.join(".aws").join(rest)))
    };
    let read = |path: &Option<PathBuf>| match path {
        Some(path) => read(path).map_err(|error| format!("{}: {error}", path.display())),
        None => Ok(String::new()),
    };
    let (credentials_path, config_path) = (
        file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        file("AWS_CONFIG_FILE", "config"),
    );
    let (credentials, config) = (read(&credentials_path)?, read(&config_path)?);
    let section = |section: &str| section == name;
    let in_config = |section: &str| match section.strip_prefix("profile") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim() == name,
        _ => name == "default" && section == name,
    };
    let (credentials, config) = (values(&credentials, section), values(&config, in_config));
    if credentials.is_none() && config.is_none() {
        let show = |path: &Option<PathBuf>| {
            let path = path.as_ref().map(|path| path.display().to_string());
            path.unwrap_or_else(|| "~/.aws".to_owned())
        };
        return match wanted {
            Some(name) => Err(format!(
                "there is no AWS profile `{name}` in {} or {}",
                show(&credentials_path),
                show(&config_path)
            )),
            None => Ok(None),
        };
    }
    let (credentials, config) = (credentials.unwrap_or_default(), config.unwrap_or_default());
    let value = |key: &str| {
        let value = credentials.get(key).or_else(|| config.get(key));
        value.filter(|value| !value.is_empty()).cloned()
    };
    // Id and secret must come from one file: those of two files would not match.
    let keys_of = |values: &HashMap<String, String>| {
        let keys = values
            .get("aws_access_key_id")
            .cloned()
            .zip(values.get("aws_secret_access_key").cloned())?;
        Some((keys, values.get("aws_session_token").cloned()))
    };
    let (keys, token) = keys_of(&credentials).or_else(|| keys_of(&config)).unzip();
    let web_identity = value("web_identity_token_file").zip(value("role_arn"));
    if keys.is_none() && web_identity.is_none() {
        if value("aws_access_key_id").is_some() || value("aws_secret_access_key").is_some() {
            return Err(format!(
                "the AWS profile `{name}` needs both aws_access_key_id and aws_secret_access_key"
            ));
        }
        if let Some((_, how)) = UNSUPPORTED.iter().find(|(key, _)| value(key).is_some()) {
            return Err(format!(
                "the AWS profile `{name}` gets its credentials from {how}, which tiledbfs does not support: \
                 run `eval \"$(aws configure export-credentials --profile {name} --format env)\"` first"
            ));
        }
    }
    Ok(Some(Profile {
        keys,
        token: token.flatten(),
        region: value("region"),
        endpoint_url: value("endpoint_url"),
        web_identity,
    }))
}

/// The home directory. Services and mount(8) have no `HOME`, so the user database is the fallback.
fn home(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from).or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::getuid());
        user.ok().flatten().map(|user| user.dir)
    })
}

/// The text of a file; empty if it does not exist.
fn read(path: &Path) -> io::Result<String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other("the file is too large for AWS profiles"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The merged values, by lower-case key, of all sections for which `wanted` is true; None if there are none.
fn values(text: &str, wanted: impl Fn(&str) -> bool) -> Option<HashMap<String, String>> {
    let mut found: Option<HashMap<String, String>> = None;
    let mut inside = false;
    for line in text.lines() {
        // Indented lines are nested values, for example below `s3 =`.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split_once(']').map_or(rest, |(name, _)| name);
            inside = wanted(name.trim());
            if inside {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value)), Some(found)) = (inside, line.split_once('='), found.as_mut())
        {
            found.insert(key.trim().to_ascii_lowercase(), without_comment(value).to_owned());
        }
    }
    found
}

/// A value without a trailing comment, which begins after white space.
fn without_comment(value: &str) -> &str {
    let comment = [" #", "\t#", " ;", "\t;"];
    let end = comment.iter().filter_map(|mark| value.find(mark)).min();
    value.get(..end.unwrap_or(value.len())).unwrap_or(value).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads a profile from the two texts; `variable` is `AWS_PROFILE`.
    fn loaded(
        name: Option<&str>,
        variable: Option<&str>,
        credentials: &str,
        config: &str,
    ) -> Result<Option<Profile>, String> {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str, text: &str| {
            let path = folder.path().join(name);
            if !text.is_empty() {
                std::fs::write(&path, text).unwrap();
            }
            path.to_str().unwrap().to_owned()
        };
        let (credentials, config) = (place("credentials", credentials), place("config", config));
        load(name, &|asked| match asked {
            "AWS_SHARED_CREDENTIALS_FILE" => Some(credentials.clone()),
            "AWS_CONFIG_FILE" => Some(config.clone()),
            "AWS_PROFILE" => variable.map(str::to_owned),
            _ => None,
        })
    }

    const CREDENTIALS: &str = "\
# a comment
[default]
aws_access_key_id = D1
aws_secret_access_key=D2/+=
[ work ]
AWS_ACCESS_KEY_ID = W1 # whose
aws_secret_access_key = W2#2
aws_session_token = W3
region = eu-west-3
[half]
aws_access_key_id = H1
";

    const CONFIG: &str = "\
[default]
region = us-west-2
s3 =
  endpoint_url = http://nested
  region = nested
[profile work]
region = eu-central-1
endpoint_url = http://127.0.0.1:9000
aws_access_key_id = other
aws_secret_access_key = other
[profile\tsso]
sso_session = x
region = us-east-2
[profile role]
role_arn = arn:aws:iam::1:role/r
source_profile = work
[profile web]
role_arn = arn:aws:iam::1:role/r
web_identity_token_file = /token
[profile program]
credential_process = /bin/keys --secret
[sso-session x]
sso_start_url = https://example.com
[work]
region = nowhere
";

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn profiles_merge_both_files() {
        let default = loaded(None, None, CREDENTIALS, CONFIG).unwrap().unwrap();
        assert!(default.keys == Some(("D1".into(), "D2/+=".into())));
        assert_eq!(default.region, text("us-west-2"));
        assert!(default.token.is_none() && default.endpoint_url.is_none());
        for work in [
            loaded(Some("work"), Some("sso"), CREDENTIALS, CONFIG),
            loaded(None, Some("work"), CREDENTIALS, CONFIG),
        ] {
            let work = work.unwrap().unwrap();
            assert!(work.keys == Some(("W1".into(), "W2#2".into())) && work.token == text("W3"));
            assert_eq!(work.region, text("eu-west-3"));
            assert_eq!(work.endpoint_url, text("http://127.0.0.1:9000"));
        }
        let config_alone = loaded(Some("work"), None, "", CONFIG).unwrap().unwrap();
        assert!(config_alone.keys == Some(("other".into(), "other".into())));
        let web = loaded(Some("web"), None, "", CONFIG).unwrap().unwrap();
        assert!(web.web_identity == Some(("/token".into(), "arn:aws:iam::1:role/r".into())));
    }

    #[test]
    fn no_profile_is_no_error_unless_it_was_named() {
        assert!(loaded(None, None, "", "").unwrap().is_none());
        assert!(
            loaded(None, None, "[other]\n", "[profile default2]\n")
                .unwrap()
                .is_none()
        );
        let message = loaded(None, Some("gone"), CREDENTIALS, CONFIG).err().unwrap();
        assert!(
            message.starts_with("there is no AWS profile `gone` in "),
            "{message}"
        );
        // An empty variable names nothing.
        assert!(loaded(None, Some(""), "", "").unwrap().is_none());
    }

    #[test]
    fn unsupported_credentials_are_an_error_with_the_command_to_run() {
        for (name, how) in [("sso", "SSO"), ("role", "a role"), ("program", "another program")] {
            let message = loaded(Some(name), None, CREDENTIALS, CONFIG).err().unwrap();
            let command = format!("aws configure export-credentials --profile {name} --format env");
            assert!(message.contains(&command) && message.contains(how), "{message}");
            assert!(!message.contains("--secret"), "{message}");
        }
        let message = loaded(Some("half"), None, CREDENTIALS, CONFIG).err().unwrap();
        assert!(message.contains("needs both"), "{message}");
    }

    #[test]
    fn too_large_files_are_refused() {
        let message = loaded(None, None, &"x".repeat(MAX_FILE_SIZE as usize + 1), "")
            .err()
            .unwrap();
        assert!(message.contains("too large"), "{message}");
    }
}
