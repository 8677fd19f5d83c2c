#include "app/cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <iostream>

#include "app/cli/line_history.h"
#include "core/error.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kRememberedLines = 1000;
constexpr const char* kPrompt = "> ";

const char* prompt_of(EditLine*) {
  return kPrompt;
}

// Also returns if a stop is requested, after at most 250 ms if the signal arrives just before poll.
void wait_for_input() {
  constexpr int kMilliseconds = 250;
  pollfd in{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (!stop_requested() && ::poll(&in, 1, kMilliseconds) == 0) {
  }
}

// Reads one character for libedit, skipping bytes that are not UTF-8. Unlike libedit's own function, a stop signal ends
// the read.
int read_character(EditLine*, wchar_t* character) {
  std::mbstate_t state{};
  for (char byte = 0;;) {
    wait_for_input();
    if (stop_requested()) return -1;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return static_cast<int>(n);
    const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<std::size_t>(-1))
      state = {};
    else if (used != static_cast<std::size_t>(-2))
      return 1;
  }
}

struct EndEditing {
  void operator()(EditLine* e) const { el_end(e); }
};
struct EndHistory {
  void operator()(History* h) const { history_end(h); }
};

}  // namespace

class LineEditor::Terminal {
 public:
  explicit Terminal(fs::path file) : kept_(std::move(file), kRememberedLines) {
    // Editing non-ASCII characters needs a multibyte locale.
    if (!std::setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    history_.reset(history_init());
    editor_.reset(el_init("qtrain", stdin, stderr, stderr));
    check(history_ && editor_, "libedit cannot be initialized");
    history(history_.get(), &event_, H_SETSIZE, kRememberedLines);
    history(history_.get(), &event_, H_SETUNIQUE, 1);
    kept_.load(history_.get());
    el_set(editor_.get(), EL_PROMPT, prompt_of);
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_set(editor_.get(), EL_SIGNAL, 0);
    el_wset(editor_.get(), EL_GETCFN, read_character);
    el_source(editor_.get(), nullptr);
  }

  Input read() {
    el_resize(editor_.get());
    int size = 0;
    const char* text = el_gets(editor_.get(), &size);
    if (stop_requested()) return {interrupted() ? Event::interrupted : Event::end};
    if (!text || size <= 0) return {Event::end};
    std::string line(text, static_cast<std::size_t>(size));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (!line.empty()) remember(line);
    return {Event::line, line};
  }

 private:
  // Saves the history immediately, as a signal may end the session.
  void remember(const std::string& line) {
    history(history_.get(), &event_, H_ENTER, line.c_str());
    kept_.remember(line);
  }

  const TerminalSettings settings_;
  const LineHistory kept_;
  HistEvent event_{};
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditing> editor_;
};

LineEditor::LineEditor(Log& log, fs::path history) : log_(log) {
  if (::isatty(STDIN_FILENO) == 1) terminal_ = std::make_unique<Terminal>(std::move(history));
}
LineEditor::~LineEditor() = default;

LineEditor::Input LineEditor::read() {
  if (terminal_) return terminal_->read();
  log_.stream(kPrompt);
  std::string line;
  if (!std::getline(std::cin, line)) return {stop_requested() && interrupted() ? Event::interrupted : Event::end};
  if (line.ends_with('\r')) line.pop_back();
  return {Event::line, std::move(line)};
}

fs::path state_file(const std::string& name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return fs::path(value ? value : "");
  };
  fs::path folder = variable("XDG_STATE_HOME");
  if (!folder.is_absolute() && variable("HOME").is_absolute()) folder = variable("HOME") / ".local/state";
  if (!folder.is_absolute()) return {};
  std::error_code failed;
  fs::create_directories(folder / "qtrain", failed);
  return failed ? fs::path() : folder / "qtrain" / name;
}

}  // namespace qtrain
