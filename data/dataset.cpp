#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/idx.h"
#include "core/plural.h"
#include "data/dataset.h"
#include "data/foreign_rows.h"
#include "data/parallel_encode.h"
#include "data/row_assembly.h"
#include "data/sampler.h"

namespace qtrain {
namespace {

constexpr std::uint32_t kHoldOut = 3;  // salt of the permutation

void check_options(const DatasetOptions& o) {
  if (o.max_length && *o.max_length < 1)
    fail(ErrorKind::usage, {.cause = "max_length must be at least 1", .remedy = "Use null for no limit."});
  if (o.packing != Packing::none && !o.max_length)
    fail(ErrorKind::usage, {.cause = "packing needs max_length", .remedy = "Set max_length."});
  if (o.response_template.empty() && !o.instruction_template.empty())
    fail(ErrorKind::usage, {.cause = "instruction_template is set, but response_template is not",
                            .remedy = "Set response_template to the text before answers."});
  if (!o.response_template.empty() && (o.assistant_only_loss || o.last_turn_only_loss))
    fail(ErrorKind::usage, {.cause = "response_template and a loss on assistant turns are both set",
                            .remedy = "Use one of them: assistant_only_loss locates answers with the chat template."});
  if (o.pack_batch_rows < 0 || o.max_rows < 0)
    fail(ErrorKind::usage, {.cause = "a number of rows must not be negative"});
}

/// Names the files behind rows: "a.jsonl", or "a.jsonl and 2 more".
std::string names_of(const RawRows& rows) {
  const std::vector<RowSourcePtr> sources = rows.sources();
  if (sources.empty()) return {};
  return sources[0]->name() + (sources.size() > 1 ? fmt::format(" and {} more", sources.size() - 1) : "");
}

/// Refuses media columns that a file stores as bytes: they are not read, but the text alone is not the whole row.
void refuse_media_of(const RawRows& rows) {
  for (const RowSourcePtr& source : rows.sources()) {
    const std::string unread = source->unread_columns();  // "image (binary), when (time)"
    for (std::size_t at = 0; at < unread.size();) {
      const std::string name = unread.substr(at, unread.find_first_of(" (.,", at) - at);
      if (is_media(name))
        fail(ErrorKind::input, {.cause = "the rows contain '" + name + "', but only text is supported",
                                .place = source->name(),
                                .remedy = "Remove the column from the file if the text makes sense without it."});
      at = std::min(unread.find(", ", at), unread.size() - 2) + 2;
    }
  }
}

void check_result(const DatasetStatistics& statistics, const DatasetOptions& options, const RawRows& rows) {
  if (rows.size() == 0)
    fail(ErrorKind::input, {.cause = "the data has no rows", .place = names_of(rows), .remedy = "Check dataset_name."});
  const LeftOutRows& unanswered = statistics.unanswered;
  if (unanswered.count == statistics.source_rows)
    fail(ErrorKind::input, {.cause = fmt::format("every row has an empty answer ({}); the first: {}",
                                                 counted(unanswered.count, "row"), unanswered.reason),
                            .place = unanswered.place,
                            .remedy = "Check where the rows keep their answers (column_mapping), or keep empty ones "
                                      "(skip_empty_answers: false)."});
  const LeftOutRows &broken = statistics.broken, &too_long = statistics.too_long;
  if (broken.count == statistics.source_rows)
    fail(ErrorKind::input,
         {.cause = fmt::format("no row alternates questions and answers ({}); the first: {}",
                               counted(broken.count, "row"), broken.reason),
          .place = broken.place,
          .remedy =
              "Check where the rows keep their messages and roles, or keep such rows (skip_broken_turns: false)."});
  if (too_long.count == statistics.source_rows)
    fail(ErrorKind::input, {.cause = fmt::format("all rows are longer than max_length {} ({}); the first: {}",
                                                 *options.max_length, counted(too_long.count, "row"), too_long.reason),
                            .place = too_long.place,
                            .remedy = "Raise max_length, or truncate such rows: truncation_mode keep_start "
                                      "(excess_length_strategy truncate in axolotl)."});
  const LeftOutRows& unplaced = statistics.unplaced;
  if (2 * unplaced.count > statistics.source_rows)
    fail(ErrorKind::input,
         {.cause = fmt::format("the assistant's turns could not be located in {} of {} rows; the first: {}",
                               unplaced.count, statistics.source_rows, unplaced.reason),
          .place = unplaced.place,
          .remedy = fmt::format("Put {{% generation %}} ... {{% endgeneration %}} around the assistant's text in the "
                                "chat template (chat_template_path), or train on all tokens ({}: false).",
                                turns_key(options))});
  if (options.packing == Packing::blocks && statistics.rows == 0)
    fail(ErrorKind::input,
         {.cause = fmt::format("all rows together have {}, too few to fill one block of {} (max_length)",
                               counted(statistics.truncated_tokens, "token"), *options.max_length),
          .place = rows.place(0),
          .remedy = "Lower max_length, or set packing_strategy to wrapped, which keeps a shorter block."});
  if (statistics.target_tokens == 0)
    fail(ErrorKind::input,
         {.cause = "the data has no target tokens: masks or max_length leave nothing to learn from",
          .place = rows.place(0),
          .remedy = "Raise max_length, or check assistant_only_loss, completion_only_loss, response_template and the "
                    "labels."});
}

}  // namespace

void build_dataset(const DatasetSource& source, ThreadPool& pool, DatasetBuilder& into) {
  const DatasetOptions& options = source.options;
  check_options(options);
  refuse_media_of(source.rows);
  RawRows part;
  if (options.max_rows > 0) part = source.rows.slice(0, std::min(options.max_rows, source.rows.size()));
  const RawRows& rows = options.max_rows > 0 ? part : source.rows;
  const RowEncoder encoder(options, source.tools);
  RowAssembly assembly({.rows = rows, .options = options, .tools = source.tools}, into);
  ParallelEncoder(rows, encoder, pool).run([&](const EncodedBlock& block) { assembly.add(block); }, options.progress);
  assembly.finish();
  for (AnswerEnd& end : into.statistics().answer_ends) {
    end.text = source.tools.tokenizer.token(end.token);
    end.special = source.tools.tokenizer.is_special(end.token);
  }
  check_result(into.statistics(), options, rows);
}

Dataset build_dataset(const RawRows& rows, const DatasetOptions& options, const TextTools& tools, ThreadPool& pool) {
  DatasetBuilder builder;
  build_dataset({.rows = rows, .options = options, .tools = tools}, pool, builder);
  return std::move(builder).finish();
}

Dataset build_dataset(const DatasetOptions& options, const TextTools& tools, ThreadPool& pool) {
  return build_dataset(RawRows(resolve_data_files(options.files, options.split)), options, tools, pool);
}

HeldOut hold_out(const RawRows& rows, double amount, std::uint64_t seed) {
  const auto size = static_cast<double>(rows.size());
  if (!(amount > 0) || amount >= size || rows.size() < 2)
    fail(ErrorKind::usage,
         {.cause = fmt::format("{} of {} rows cannot be held out", amount, rows.size()),
          .remedy = "Give a fraction below 1 or a smaller number of rows. The data needs at least two rows."});
  const auto wanted = static_cast<std::int64_t>(std::ceil(amount < 1 ? amount * size : amount));
  const std::int64_t count = std::clamp<std::int64_t>(wanted, 1, rows.size() - 1);
  std::vector<std::int64_t> order = random_permutation(rows.size(), {.seed = seed, .salt = kHoldOut});
  std::sort(order.begin(), order.begin() + count);
  std::sort(order.begin() + count, order.end());
  return {.train = rows.select({order.begin() + count, order.end()}),
          .evaluation = rows.select({order.begin(), order.begin() + count})};
}

}  // namespace qtrain
