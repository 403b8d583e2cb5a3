//! `tiledbfs man` and `tiledbfs completions`, both generated from the definition of the arguments.

use super::output::{finish, stdout};
use super::{Failure, show_path};
use clap::{Arg, ArgAction, Args, Command, ValueEnum, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) const COMPLETIONS_HELP: &str = "\
Examples:
  source <(tiledbfs completions bash)
  tiledbfs completions zsh > ~/.zfunc/_tiledbfs
  tiledbfs completions fish > ~/.config/fish/completions/tiledbfs.fish";

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The directory to write tiledbfs.1, tiledbfs-mount.1 and so on to
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,
}

/// Runs `tiledbfs completions`.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tiledbfs", &mut script);
    let script = String::from_utf8(script).expect("clap writes UTF-8");
    let written = stdout()?.write_all(completed(args.shell, script, &command).as_bytes());
    finish(written.map_err(Into::into))
}

/// A script of clap's, with what it lacks: bash is to complete an empty word to a file, not to an option, and
/// fish to know the shells and commands that are arguments.
fn completed(shell: Shell, mut script: String, command: &Command) -> String {
    match shell {
        Shell::Bash => {
            let words = r#"compgen -W "${opts}""#;
            script = script.replace(words, &format!(r#"{words} -X "$([[ ${{cur}} ]] || echo '-*')""#));
        }
        Shell::Fish => {
            let shells = Shell::value_variants().iter().map(Shell::to_string);
            let commands = command
                .get_subcommands()
                .map(|command| command.get_name().to_owned());
            let (shells, commands): (Vec<_>, Vec<_>) = (shells.collect(), commands.collect());
            for (of, words) in [("completions", shells), ("help", commands)] {
                script += &format!(
                    "complete -c tiledbfs -n \"__fish_tiledbfs_using_subcommand {of}\" -f -a \"{}\"\n",
                    words.join(" ")
                );
            }
        }
        _ => {}
    }
    script
}

/// Runs `tiledbfs man`.
pub(super) fn run(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let place = |error: io::Error| Failure::new(format!("{}: {error}", show_path(&args.dir)));
    fs::create_dir_all(&args.dir).map_err(place)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in shown.chain([&command]) {
        let (name, text) = page(command).map_err(place)?;
        fs::write(args.dir.join(name), text).map_err(place)?;
    }
    // The page that mount(8) refers to.
    let helper = args.dir.join("mount.tiledbfs.8");
    fs::write(helper, ".so man1/tiledbfs-mount.1\n").map_err(place)
}

/// The file name and text of a command's manual page.
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).source(concat!("tiledbfs ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
        man.render_version_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if let Some(more) = command.get_after_help() {
        sections(&mut roff, &more.to_string());
    }
    if !command.has_subcommands() {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold("tiledbfs"), roman("(1)")]);
    }
    roff.to_writer(&mut text)?;
    Ok((man.get_filename(), text))
}

/// The synopsis: all options with the names of their values, then the arguments.
fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let mut line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (arguments, options): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|argument| argument.is_positional());
    for option in options {
        line.push(roman(" ["));
        let short = option.get_short().map(|short| format!("-{short}"));
        let long = option.get_long().map(|long| format!("--{long}"));
        for (number, name) in short.into_iter().chain(long).enumerate() {
            if number > 0 {
                line.push(roman("|"));
            }
            line.push(bold(name));
        }
        if option.get_action().takes_values() {
            line.push(roman(" "));
            line.push(italic(value_name(option)));
        }
        line.push(roman("]"));
        if matches!(option.get_action(), ArgAction::Append | ArgAction::Count) {
            line.push(roman("..."));
        }
    }
    for argument in arguments {
        let (open, close) = match argument.is_required_set() {
            true => (" ", ""),
            false => (" [", "]"),
        };
        line.extend([roman(open), italic(value_name(argument))]);
        // The name of several may say itself which is repeated.
        if matches!(argument.get_action(), ArgAction::Append) && !value_name(argument).contains("...") {
            line.push(roman("..."));
        }
        line.push(roman(close));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.text(line);
    roff
}

/// The name of an argument's value, as the help shows it.
fn value_name(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or(&[]);
    match names.is_empty() {
        true => argument.get_id().as_str().to_uppercase(),
        false => names.join(" "),
    }
}

/// Renders the text after the options. Unindented lines that end in `:` are headings, indented ones verbatim.
fn sections(roff: &mut Roff, text: &str) {
    let mut kept = false;
    let mut keep = |roff: &mut Roff, now: bool| {
        if kept != now {
            roff.control(if now { "nf" } else { "fi" }, []);
        }
        kept = now;
    };
    if !text.lines().next().is_some_and(|line| line.ends_with(':')) {
        roff.control("SH", ["NOTES"]);
    }
    for line in text.lines() {
        let indented = line.starts_with(' ');
        keep(roff, indented);
        match line.strip_suffix(':') {
            Some(heading) if !indented => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
            }
            _ if line.is_empty() => {
                roff.control("PP", []);
            }
            _ => {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
        }
    }
    keep(roff, false);
}
