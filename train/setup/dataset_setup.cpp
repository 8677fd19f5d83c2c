#include "train/setup/dataset_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "config/dataset_card.h"
#include "config/training_sources.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "data/row_shapes.h"

namespace qtrain {
namespace {

/// The sources of a split, before the cards of their folders are read.
std::vector<DataSource> given_sources(const DataSection& data, Split split) {
  if (split == Split::train || data.eval_dataset_name.empty()) return training_sources(data);
  const bool same_data = data.eval_dataset_name == data.dataset_name;
  return {{.files = data.eval_dataset_name,
           .splits = named_splits("dataset_test_split", data.dataset_test_split),
           .columns = columns_of(data),
           .shared = {.columns = true, .message_keys = true},
           .config = same_data ? data.dataset_config : std::nullopt}};
}

std::vector<DataSource> sources_of(const DataSection& data, Split split) {
  std::vector<DataSource> sources = given_sources(data, split);
  for (DataSource& source : sources) apply_cards(source);
  return sources;
}

/// The split of a folder's files to read: held-out rows come from the training files.
Split part_of_files(const DataSection& data, Split split) {
  return split == Split::evaluation && !data.eval_dataset_name.empty() ? Split::evaluation : Split::train;
}

}  // namespace

DatasetOptions dataset_options(const Config& config, Split split) {
  const DataSection& d = config.data;
  const bool training = split == Split::train;
  return {.files = training ? d.dataset_name : d.eval_dataset_name,
          .split = split,
          .max_length = d.max_length,
          .too_long = d.truncation_mode,
          .split_long_texts = d.split_long_texts,
          .packing = training ? d.train_packing() : d.evaluation_packing(),
          .assistant_only_loss = d.assistant_only_loss,
          .completion_only_loss = d.completion_only_loss,
          .last_turn_only_loss = d.last_turn_only_loss,
          .skip_empty_answers = d.skip_empty_answers,
          .skip_broken_turns = d.skip_broken_turns,
          .first_prompt_only = d.first_prompt_only,
          .learn_plain_texts = d.learn_plain_texts,
          .allow_empty_answers = d.allow_empty_answers,
          .response_template = d.response_template,
          .instruction_template = d.instruction_template,
          .dataset_text_field = d.dataset_text_field,
          .pack_batch_rows = d.packing_scope == PackingScope::dataset ? 0 : 1000,
          .isolate_wrapped = d.packing_isolate,
          .shuffle_dataset = training && d.shuffle_dataset,
          .seed = static_cast<std::uint64_t>(config.training.data_seed.value_or(config.training.seed)),
          .max_rows = d.max_samples.value_or(0),
          .progress = [](std::int64_t, std::int64_t) { throw_if_stopped(); }};
}

SourceFiles data_files(const DataSection& data, Split split) {
  if (split == Split::evaluation && data.eval_dataset_name.empty() && data.eval_split <= 0) return {};
  return source_files(sources_of(data, split), part_of_files(data, split));
}

RawRows data_rows(const Config& config, Split split) {
  return data_rows(config, split, data_files(config.data, split));
}

// Rows are held out of each source before mixing, because a mixture may repeat a row.
RawRows data_rows(const Config& config, Split split, const SourceFiles& files) {
  const DataSection& d = config.data;
  const bool own_rows = !d.eval_dataset_name.empty();
  if (files.empty()) return {};
  const std::uint64_t seed = dataset_options(config, Split::train).seed;
  const std::vector<DataSource> sources = sources_of(d, split);
  std::vector<RawRows> parts = source_rows(sources, files);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = chosen_share(sources[i], std::move(parts[i]));
  if (!own_rows && d.eval_split >= 1 && parts.size() > 1)
    fail(ErrorKind::usage, {.cause = fmt::format("eval_split {} is a number of rows, but there are {} sources",
                                                 d.eval_split, parts.size()),
                            .remedy = "give a fraction, which is held out of each source"});
  if (!own_rows && d.eval_split > 0)
    for (RawRows& part : parts) {
      HeldOut held = hold_out(part, d.eval_split, seed);
      part = split == Split::train ? std::move(held.train) : std::move(held.evaluation);
    }
  if (split == Split::evaluation) return RawRows::concatenated(parts);
  return mixed_rows(std::move(parts), {.sources = sources, .strategy = d.mix_strategy, .seed = seed});
}

std::string describe_rows(const RawRows& rows, const DataSection& data) {
  std::map<std::string_view, int> formats;
  const std::vector<RowSourcePtr> sources = rows.sources();
  for (const RowSourcePtr& source : sources) ++formats[source->format()];
  std::vector<std::string> files;
  for (const auto& [format, count] : formats) files.push_back(counted(count, fmt::format("{} file", format)));
  const std::string_view shape =
      rows.size() > 0 ? shape_name(rows.parse(0), {.text_field = data.dataset_text_field}) : std::string_view();
  return fmt::format("{}{}{} in {}", counted(rows.size(), "row"), shape.empty() ? "" : " of ", shape,
                     fmt::join(files, ", "));
}

}  // namespace qtrain
