#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/cli/hub_arguments.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "config/remarks.h"
#include "core/os/file.h"
#include "core/os/slow_result.h"
#include "core/os/stop.h"
#include "report/data_report.h"
#include "report/metrics.h"
#include "train/setup/prepared_data.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

void write_dump(const Dataset& rows, ResultFile& place) {
  const std::filesystem::path file = place.place_now();
  write_result({file, place.name_now()}, [&](const std::function<void(std::span<const std::byte>)>& append) {
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const std::string line = dump_line(rows, i);
      append(std::as_bytes(std::span(line)));
      throw_if_stopped();
    }
  });
}

std::string split_text(const char* title, const DataReport& report) {
  return fmt::format("{}\n  {}\n", title, fmt::join(report.lines(), "\n  "));
}

}  // namespace

/// `qtrain preprocess`: puts the rows of a config into the token cache and reports statistics on them.
int run_preprocess(const Arguments& args) {
  const ResolvedConfig config = load_run_config(args, args.operand(0), {.model = ModelFiles::text});
  tell_remarks(config, args.log());
  const Config& c = config.value;
  std::optional<ResultFile> dump = result_file(args, "dump", files_of_config(args, c));
  args.log().show_progress(!c.training.disable_tqdm);
  if (!c.data.has_training_rows())
    fail(ErrorKind::usage,
         {.cause = "\"dataset_name\" is missing", .remedy = "set it to a JSONL file, a glob or a folder"});
  ThreadPool pool(static_cast<int>(c.run.threads));
  Stopwatch watch;
  DataPreparation preparation(c, pool, args.log());
  const Dataset train = preparation.rows(Split::train), evaluation = preparation.rows(Split::evaluation);
  if (!c.model.model_name_or_path.empty()) {  // rows can be prepared with a tokenizer alone
    require_vocabulary(c, train, Split::train);
    require_vocabulary(c, evaluation, Split::evaluation);
  }
  const double seconds = watch.seconds();
  if (dump) write_dump(train, *dump);

  const DataReport report = report_on(train, c, Split::train);
  const std::string folder = preparation.kept_in().string();
  CommandResult result{.text = split_text("training", report), .json = report.json()};
  Json& json = result.json;
  json["evaluation"] = Json();
  if (evaluation.size() > 0) {
    const DataReport held_out = report_on(evaluation, c, Split::evaluation);
    json["evaluation"] = held_out.json();
    result.text += split_text("evaluation", held_out);
  }
  json["max_length"] = c.data.max_length ? Json(*c.data.max_length) : Json();
  json["fingerprint"] = fmt::format("{:016x}", train.fingerprint());
  json["token_cache"] = folder;
  json["seconds"] = seconds;
  json["peak_rss_mb"] = resident_memory().peak_mb;
  args.log().info("prepared the rows in {:.2f} s; {}", seconds,
                  folder.empty() ? "not cached, because the token cache is off" : "cached in " + folder);
  args.give(result);
  return 0;
}

}  // namespace qtrain
