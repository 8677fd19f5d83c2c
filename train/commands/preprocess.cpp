#include <fmt/format.h>

#include "core/file.h"
#include "train/cli/arguments.h"
#include "train/data_report.h"
#include "train/metrics.h"
#include "train/prepared_data.h"
#include "train/stop.h"

namespace qtrain {
namespace {

void write_dump(const Dataset& rows, const std::string& file) {
  write_file(file, [&](const std::function<void(std::span<const std::byte>)>& append) {
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const std::string line = dump_line(rows, i);
      append(std::as_bytes(std::span(line)));
      throw_if_stopped();
    }
  });
}

void print_split(const char* title, const DataReport& report, Log& log) {
  log.result(title);
  for (const std::string& line : report.lines()) log.result("  " + line);
}

}  // namespace

/// `qtrain preprocess`: puts the rows of a config into the token cache and tells about them.
int run_preprocess(const Arguments& args) {
  const ResolvedConfig config = load_config(args.operand(0), args.overrides());
  for (const std::string& note : config.notes) args.log().info("{}", note);
  const Config& c = config.value;
  if (!c.data.has_training_rows())
    fail(ErrorKind::usage, {.cause = "\"dataset_name\" is missing", .remedy = "name a JSONL file, a glob or a folder"});
  ThreadPool pool(static_cast<int>(c.run.threads));
  Stopwatch watch;
  DataPreparation preparation(c, pool, args.log());
  const Dataset train = preparation.rows(Split::train), evaluation = preparation.rows(Split::evaluation);
  const double seconds = watch.seconds();
  if (const auto file = args.text("dump")) write_dump(train, *file);

  const DataReport report = report_on(train, c, Split::train);
  const std::string folder = preparation.kept_in().string();
  if (args.json()) {
    Json json = report.json();
    json["evaluation"] = evaluation.size() > 0 ? report_on(evaluation, c, Split::evaluation).json() : Json();
    json["max_length"] = c.data.max_length ? Json(*c.data.max_length) : Json();
    json["fingerprint"] = fmt::format("{:016x}", train.fingerprint());
    json["token_cache"] = folder;
    json["seconds"] = seconds;
    json["peak_rss_mb"] = resident_memory().peak_mb;
    args.log().result(dump_json(json, 2));
    return 0;
  }
  print_split("training", report, args.log());
  if (evaluation.size() > 0) print_split("evaluation", report_on(evaluation, c, Split::evaluation), args.log());
  args.log().info("{:.2f} s; {}", seconds, folder.empty() ? "not kept: there is no token cache" : "kept in " + folder);
  return 0;
}

}  // namespace qtrain
