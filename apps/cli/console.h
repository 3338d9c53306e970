#pragma once
#include <string>
#include <string_view>

/// The two ways out: results to stdout, everything said along the way to stderr.
namespace lockstep::apps {

/// Makes the standard streams safe to use: closed ones are opened on /dev/null, so that no file of
/// ours takes their number, and neither a closed pipe nor a file limit ends the process.
void prepare_console();

/// Results. A reader that went away (`| head`) is not an error but false, so that nobody goes on
/// for nobody; a full disk is a SystemError(file).
bool print(std::string_view text);

/// "lockstep: TEXT" and a newline on stderr: one line whatever the text holds.
void complain(std::string_view text) noexcept;

/// As it is, to stderr; failures are ignored.
void say(std::string_view text) noexcept;

bool stderr_is_terminal();
/// Columns of the terminal, 80 when unknown.
int terminal_width();

}  // namespace lockstep::apps
