#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <system_error>

#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "app/reproduction/statement.h"
#include "app/reproduction/verification.h"
#include "config/fields.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "core/utf8.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// Indents the lines of a text, which may quote file names and contents, below the first one.
std::string indented(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\n              " : std::string(1, c);
  return out;
}

CommandResult result_of(const fs::path& output, const Verification& v) {
  CommandResult result{.text = "",
                       .json = {{"run", output.string()},
                                {"holds", v.holds()},
                                {"checks", Json::array()},
                                {"redone", Json::array()},
                                {"earlier", Json::array()}}};
  for (const Finding& f : v.findings) {
    result.text += f.problem.empty() ? fmt::format("as recorded   {}\n", one_line(f.about))
                                     : fmt::format("DIFFERS       {}: {}\n", one_line(f.about), indented(f.problem));
    result.json["checks"].push_back({{"about", f.about}, {"holds", f.problem.empty()}, {"problem", f.problem}});
  }
  for (const RedoneSteps& s : v.redone) result.json["redone"].push_back({{"first", s.from + 1}, {"last", s.to}});
  for (const EarlierValues& e : v.earlier) {
    result.json["earlier"].push_back({{"until", e.until}, {"values", e.values}, {"ranks", e.ranks}});
    result.text += fmt::format("steps up to {} were trained with {} and {}\n", e.until, dump_json(e.values),
                               counted(e.ranks, "rank"));
  }
  result.text +=
      fmt::format("{}: {}", one_line(output.string()), v.holds() ? "verified" : "the run does not match its records");
  return result;
}

// Parses STEP:KEY=VALUE.
void take_earlier(const std::string& text, std::map<std::int64_t, Json>& earlier) {
  const std::size_t colon = std::min(text.find(':'), text.size()), equals = text.find('=', colon);
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + colon, step);
  if (error != std::errc() || end != text.data() + colon || step < 1 || equals == std::string::npos)
    fail(ErrorKind::usage, {.cause = fmt::format("\"{}\" is not STEP:KEY=VALUE", text), .place = "--earlier"});
  const std::string key = text.substr(colon + 1, equals - colon - 1), value = text.substr(equals + 1);
  if (on_resume(key) != OnResume::update && on_resume(key) != OnResume::note)
    fail(ErrorKind::usage, {.cause = fmt::format("\"{}\" is not a key that may change when a run is resumed", key),
                            .place = "--earlier"});
  earlier.try_emplace(step, Json::object()).first->second[key] =
      Json::accept(value) ? parse_json(value, "--earlier") : Json(value);
}

std::map<std::int64_t, Json> earlier_values(const Arguments& args) {
  std::map<std::int64_t, Json> earlier;
  for (const std::string& text : args.all("earlier")) take_earlier(text, earlier);
  return earlier;
}

// The path as an absolute one, which stays valid after changing to the run's folder. Leaves `..` after links alone.
fs::path place_of_statement(const std::string& name) {
  std::error_code error;
  const fs::path place = fs::absolute(name, error);
  return error ? absolute_path(name) : place;
}

std::vector<fs::path> files_verify_reads(const RecordedRun& run) {
  std::vector<fs::path> files = files_of_run(run.output);
  for (const auto& [name, hash] : run.files) files.push_back(run.file_now(name));
  try {
    enter_folder(run);
    for (const fs::path& file : recorded_data_files(run)) files.push_back(full_path(file));
  } catch (const Error&) {  // the verification reports missing files
  }
  return files;
}

fs::path scratch_place(const Arguments& args) {
  if (const auto given = args.text("scratch")) return real_path(*given);
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (!error) return real_path(folder.string());
  fail(ErrorKind::disk, {.cause = "there is no folder for temporary files: " + error.message(),
                         .place = "TMPDIR",
                         .remedy = "name a writable folder with --scratch"});
}

}  // namespace

int run_verify(const Arguments& args) {
  const fs::path output = real_path(args.operand(0));
  const std::int64_t steps = args.integer("steps").value_or(1);
  if (steps < 0) fail(ErrorKind::usage, {.cause = "must not be negative", .place = "--steps"});
  const auto statement = args.text("statement");
  const std::optional<fs::path> file = statement ? std::optional(place_of_statement(*statement)) : std::nullopt;
  if (file && !manifest_step(output))
    fail(ErrorKind::usage, {.cause = "needs a finished run with a complete manifest.json",
                            .place = "--statement",
                            .remedy = "finish the run first"});
  if (file && steps == 0)
    fail(ErrorKind::usage, {.cause = "needs repeated steps, but --steps 0 repeats none",
                            .place = "--statement",
                            .remedy = "leave --steps out, or give a number above 0"});
  const fs::path place = scratch_place(args);
  const RecordedRun run = read_recorded_run(output, args.all("moved"));
  std::optional<ResultFile> result;
  if (file) result.emplace(args, *file, files_verify_reads(run));
  const Verification v =
      verify_run(run, {.earlier = earlier_values(args), .steps = steps, .scratch = place, .log = args.log()});
  args.give(result_of(output, v));
  if (!v.holds()) return static_cast<int>(ErrorKind::input);
  if (file && v.resumed_later)  // the config of the result is no longer recorded
    fail(ErrorKind::usage,
         {.cause = "describes the result, but the config in the folder is already that of a later start",
          .place = "--statement",
          .remedy = "finish the run first"});
  if (result) write_result(result->place_now(), dump_json(in_toto_statement(run, v), 2) + "\n");
  return 0;
}

}  // namespace qtrain
