#include <fmt/format.h>

#include <algorithm>

#include "data/encode.h"
#include "model/model_config.h"
#include "model/model_source.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/text_folder.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

struct IdInRow {
  std::int32_t id;
  const char* what = "token id";
  std::string place;
  bool given = false;  ///< the row contains the id itself; the tokenizer did not produce it
};

// Encodes the rows again, up to the first with an id outside the vocabulary.
std::optional<IdInRow> first_beyond(const Config& config, Split split, std::int64_t vocabulary) {
  const DatasetOptions options = dataset_options(config, split);
  const TextFolder text = load_text_folder(config);
  const RowEncoder encoder(options, text.tools());
  const RawRows rows = data_rows(config, split);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const Json parsed = rows.parse(i);
    const EncodedRow row = encoder.encode(parsed);
    for (const auto* ids : {&row.input_ids, &row.labels})
      if (const auto id = std::ranges::find_if(*ids, [&](std::int32_t v) { return v >= vocabulary; }); id != ids->end())
        return IdInRow{.id = *id,
                       .what = ids == &row.labels ? "label" : "token id",
                       .place = rows.place(i),
                       .given = parsed.contains("input_ids")};
  }
  return {};
}

}  // namespace

void require_vocabulary(const Config& config, const Dataset& rows, Split split) {
  const std::int64_t vocabulary = load_model_config(model_path(config.model.model_name_or_path)).vocab_size;
  const std::int32_t largest = rows.statistics().max_token_id;
  if (largest < vocabulary) return;
  const char* all = split == Split::train ? "training rows" : "evaluation rows";
  const IdInRow found = first_beyond(config, split, vocabulary).value_or(IdInRow{.id = largest, .place = all});
  fail(ErrorKind::input,
       {.cause = fmt::format("{} {} is outside the model's vocabulary of {} entries", found.what, found.id, vocabulary),
        .place = found.place,
        .remedy = found.given ? "the row contains the ids: create them with this model's tokenizer"
                              : "the tokenizer does not belong to this model"});
}

}  // namespace qtrain
