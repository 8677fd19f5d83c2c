#include "app/cli/man_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/command_table.h"
#include "app/cli/exit_codes.h"
#include "core/os/terminal.h"
#include "core/version.h"

namespace qtrain {
namespace {

struct Named {
  std::string_view name, meaning;
};
constexpr Named kEnvironment[] = {
    {"QTRAIN_CPU_ISA", "The instruction set that the program computes with: avx2, avx512 or avx512_bf16."},
    {"NO_COLOR", "If set and not empty, nothing is colored."},
    {"TERM", "Unset, empty or dumb: no line is drawn again."},
    {"COLUMNS", "The width of a terminal that does not tell its own."},
    {"LD_LIBRARY_PATH", "Where NCCL, cuBLAS and NVML are looked for before the usual folders."},
    {"QTRAIN_RANK_SECRET",
     "What the ranks of a run on several machines know each other by: the same 16 or more characters on all of them."},
    {"XDG_CACHE_HOME", "Where prepared rows are kept, in qtrain/; else ~/.cache."}};
constexpr Named kFiles[] = {
    {"adapter_model.safetensors, model*.safetensors", "The final adapter or model, as PEFT or transformers write it."},
    {"checkpoint-N/", "What a run goes on from, sealed by manifest.json."},
    {"metrics.jsonl", "Every logged row as it happens."},
    {"resolved_config.json", "Every value, where it came from, versions, seeds and hashes."},
    {"runs/", "Event files of TensorBoard."}};

/// Text for roff: nothing in it is a command.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && out.empty()) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else
      out += c;
  }
  return out;
}

/// In lines that fit a terminal: those who read the source, and mandoc, want that.
std::string filled(std::string_view text) {
  std::string out;
  for (const std::string& line : wrapped(text, 74)) {
    const std::string_view words(line);
    out += plain(words.substr(std::min(words.find_first_not_of(' '), words.size()))) + "\n";
  }
  return out;
}

std::string paragraph(std::string_view term, std::string_view text) {
  return fmt::format(".TP\n{}\n{}", term, filled(text));
}

std::string flag_term(const Flag& f) {
  const std::string name = fmt::format("\\fB\\-\\-{}\\fR", plain(f.name));
  return f.kind == FlagKind::present ? name : fmt::format("{} \\fI{}\\fR", name, plain(f.value));
}

/// What every command takes, told once.
bool is_common(const Flag& f) {
  return f.name == "help" || f.name == "quiet" || f.name == "threads" || f.name == "device";
}

std::string section_of(const Command& c) {
  std::string out =
      fmt::format(".SS \"qtrain {0}\"\n\\fBqtrain {0}\\fR {1}{2}[options]\n.PP\n{3}", plain(c.name), plain(c.operands),
                  c.operands.empty() ? "" : " ", filled(fmt::format("{}.", c.summary)));
  for (const Flag& f : c.flags)
    if (!is_common(f)) out += paragraph(flag_term(f), f.doc);
  return out;
}

std::string common_options() {
  std::string out = ".SH OPTIONS OF EVERY COMMAND\n";
  for (const Flag& f : commands().front().flags)
    if (is_common(f)) out += paragraph(flag_term(f), f.doc);
  return out +
         paragraph("\\fIkey\\fR=\\fIvalue\\fR",
                   "Behind a config: overrides any config key, with dots for nesting. `qtrain config` lists them.");
}

constexpr const char* kHead = R"(.\" Made by `qtrain man` of the command table.
.TH QTRAIN 1 {} "qtrain {}" "User Commands"
.SH NAME
qtrain \- train and run language models on this machine
.SH SYNOPSIS
.nf
\fBqtrain\fR \fICONFIG.json\fR [\fIkey\fR=\fIvalue\fR ...]
\fBqtrain\fR \fICOMMAND\fR [options]
.fi
.SH DESCRIPTION
Trains all weights of a Hugging Face model folder, or a LoRA adapter, on rows of
text, as a config in JSON or YAML says, and writes folders that transformers and
PEFT load.
Results go to standard output, everything else to standard error.
.SH COMMANDS
)";
constexpr const char* kEnd = R"(.SH EXAMPLES
.nf
qtrain config.json learning_rate=1e\-4
qtrain chat \-\-model DIR \-\-adapter output
qtrain monitor \-\-run output
.fi
)";

}  // namespace

std::string man_page() {
  std::string out = fmt::format(fmt::runtime(kHead), kVersionDate, kVersion);
  for (const Command& c : commands()) out += section_of(c);
  out += common_options();
  out += ".SH EXIT STATUS\n";
  for (const ExitCode& e : kExitCodes) out += paragraph(fmt::format("\\fB{}\\fR", e.code), e.meaning);
  out += ".SH ENVIRONMENT\n";
  for (const Named& e : kEnvironment) out += paragraph(fmt::format("\\fB{}\\fR", e.name), e.meaning);
  out += ".SH FILES\nIn the output directory of a run:\n";
  for (const Named& f : kFiles) out += paragraph(fmt::format("\\fI{}\\fR", plain(f.name)), f.meaning);
  return out + kEnd;
}

}  // namespace qtrain
