#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "app/init/drafting.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "data/source/split_choice.h"
#include "hub/fetch.h"
#include "model/model_source.h"
#include "train/setup/answer_end.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/hub_files.h"
#include "train/setup/model_setup.h"
#include "train/setup/row_notes.h"
#include "train/setup/vocabulary.h"

/// What `qtrain init` finds out about the model and the rows.
namespace qtrain::init {
namespace {

constexpr std::int64_t kMeasuredRows = 2000;

/// Formats for a model without a chat template, if its tokenizer has the token that ends their answers; the last one
/// needs only an end token.
constexpr std::array<const char*, 6> kFormats{"chatml", "llama3", "gemma", "phi3", "mistral", "zephyr"};

}  // namespace

void Drafting::fetch(const Json& more, const NeededOfConfig& needed) const {
  const ResolvedConfig named = config(more);
  if (named.hub_names.empty()) return;
  HubFetcher fetcher({}, log_);
  fetch_named(fetcher, named, needed);
}

void Drafting::look_at_model() {
  Json named{{"model_name_or_path", request_.model}};
  if (!request_.revision.empty()) named["model_revision"] = request_.revision;
  fetch(named, {.model = request_.files, .rows = false});
  ResolvedConfig c = config(named);
  c.value.lora.use_peft = true;  // the weights of any folder may be frozen
  compute_ = plan_compute(compute_choice(c.value));
  const ModelSetup setup = set_up_model(compute_, training_request(c.value));
  const ModelConfig& model = setup.model->config();
  const bool on_hub =
      std::ranges::any_of(c.hub_names, [](const NamedOnHub& name) { return name.key == "model_name_or_path"; });
  // For a name on the hub, only the files that are needed here are fetched.
  const bool folder_is_blank = setup.random_init && !on_hub && !choices_.is_given("random_init");
  random_init_ = setup.random_init && !on_hub;
  hidden_size_ = model.hidden_size;
  positions_ = model.max_position_embeddings;
  text_ = load_text_folder(c.value);
  target_ = target_here(compute_.device, pool_.size());
  speed_ = speed_here(target_, {.matmul = compute_.matmul, .threads = pool_.size(), .hidden_size = hidden_size_});
  choices_.add({.key = "model_name_or_path",
                .value = request_.model,
                .reason = fmt::format("a {} of {:.1f} M parameters, {}{}", model.model_type,
                                      static_cast<double>(setup.model->params().elements()) / 1e6,
                                      text_.chat_template ? "with a chat template" : "without a chat template",
                                      folder_is_blank ? "; the folder has no weights" : "")});
  if (!request_.revision.empty()) choices_.add({.key = "model_revision", .value = request_.revision, .reason = ""});
}

/// Whether a split has files; false if it cannot be told from others.
bool Drafting::has_files(const Json& more, Split split) const {
  try {
    fetch(more, {.model = ModelFiles::none});
    return !data_files(config(more).value.data, split).empty();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

/// Fetches the rows. Of several splits for training, as UltraChat has them, takes the one for supervised fine-tuning.
void Drafting::choose_splits() {
  Json named{{"dataset_name", request_.data}};
  try {
    fetch(named, {.model = ModelFiles::none});
    data_files(config(named).value.data, Split::train);
    return;
  } catch (const Error& e) {
    named["dataset_train_split"] = "train_sft";
    const bool several = e.text().cause.starts_with(kSeveralSplits) && !choices_.is_given("dataset_train_split");
    if (!several || !has_files(named, Split::train)) throw;
  }
  choices_.add({.key = "dataset_train_split",
                .value = "train_sft",
                .reason = "of several splits, the one for supervised fine-tuning"});
  named["eval_dataset_name"] = request_.data;
  named["dataset_test_split"] = "test_sft";
  if (has_files(named, Split::evaluation))
    choices_.add({.key = "dataset_test_split", .value = "test_sft", .reason = ""});
}

void Drafting::look_at_data() {
  choose_splits();
  const Json named{{"dataset_name", request_.data}};
  const ResolvedConfig c = config(named);
  rows_ = data_rows(c.value, Split::train);
  if (rows_.size() == 0) fail(ErrorKind::input, {.cause = "it has no rows", .place = request_.data});
  const ChatTemplates templates = text_.chat_template ? ChatTemplates::some : ChatTemplates::none;
  const Json given = choices_.given("dataset_text_field");
  const std::string text_field = given.is_string() ? given.get<std::string>() : "";
  look_ = look_at_rows(rows_, templates, text_field);
  const std::string unread = names_of_unread(look_);
  choices_.add({.key = "dataset_name",
                .value = request_.data,
                .reason = described_rows() + (unread.empty() ? "" : "; " + unread)});
  choose_template();
  if (text_.chat_template && templates == ChatTemplates::none)
    look_ = look_at_rows(rows_, ChatTemplates::some, text_field);
  note_columns();
  for (const auto& [key, value] : look_.settings.items())
    choices_.add({.key = key, .value = value, .reason = reason_of(key, value)});
  choose_end();
  choose_evaluation();
  rows_ = data_rows(config().value, Split::train);
  course_.train_rows = rows_.size();
}

/// "120 rows of messages in 1 jsonl file", of the shape that the rows have with the mapping.
std::string Drafting::described_rows() const {
  Json more = look_.settings;
  more["dataset_name"] = request_.data;
  const Config c = config(more).value;
  return describe_rows(data_rows(c, Split::train), c.data);
}

void Drafting::note_columns() {
  notes_ = look_.warnings;
  if (const std::string unread = names_of_unread(look_); !unread.empty())
    notes_.push_back(unread + "; column_mapping says what a column is");
}

void Drafting::choose_template() {
  const bool answers = look_.shape != RowShape::text && look_.shape != RowShape::tokens;
  if (text_.chat_template || !answers || choices_.is_given("chat_template_path")) return;
  for (const char* format : kFormats) {
    const Json with{{"chat_template_path", format}, {"eos_token", kAutomaticEnd}};
    try {
      text_ = load_text_folder(config(with).value);
    } catch (const Error& e) {  // the tokenizer lacks the end token of this format
      if (e.kind() != ErrorKind::usage) throw;
      continue;
    }
    choices_.add({.key = "chat_template_path",
                  .value = format,
                  .reason = "the model has no chat template, and its tokenizer has the end token of this one"});
    return;
  }
}

void Drafting::choose_end() {
  const bool chat = look_.shape == RowShape::chat || look_.shape == RowShape::chat_pair;
  if (!chat || !text_.chat_template || choices_.is_given("eos_token")) return;
  const ResolvedConfig c = config();
  std::string end;
  try {
    end = end_of_answers(load_text_folder(c.value), c.value);
  } catch (const Error& e) {  // validate explains what to do
    if (e.kind() != ErrorKind::usage) throw;
    return;
  }
  const std::filesystem::path model = model_path(c.value.model.model_name_or_path);
  const std::filesystem::path folder = is_folder(model) ? model : model.parent_path();
  const TextFolder own = load_text_folder(folder);
  const auto id = own.tokenizer->id_of(end);
  const std::vector<std::int32_t> stops = model_end_tokens(folder);
  const bool known = id && (std::ranges::find(stops, *id) != stops.end() || own.tokenizer->special().eos_id == id);
  if (!known)
    choices_.add({.key = "eos_token",
                  .value = kAutomaticEnd,
                  .reason = fmt::format("answers end with {}, which is not an end token of the model yet", end)});
}

// Files and globs are the same for every split.
bool Drafting::has_own_evaluation() {
  std::error_code ignored;
  if (std::filesystem::exists(request_.data, ignored) && !std::filesystem::is_directory(request_.data, ignored))
    return false;
  const Json both{{"dataset_name", request_.data}, {"eval_dataset_name", request_.data}};
  if (!choices_.is_given("dataset_test_split") && !has_files(both, Split::evaluation)) return false;
  const ResolvedConfig c = config(both);
  std::set<std::filesystem::path> train;
  for (const auto& files : data_files(c.value.data, Split::train)) train.insert(files.begin(), files.end());
  const SourceFiles held = data_files(c.value.data, Split::evaluation);
  const auto is_new = [&](const std::filesystem::path& file) { return !train.contains(file); };
  return !held.empty() &&
         std::ranges::all_of(held, [&](const auto& files) { return std::ranges::all_of(files, is_new); }) &&
         is_read_likewise(c.value);
}

/// Whether rows for evaluation have the columns that were chosen for training.
bool Drafting::is_read_likewise(const Config& config) {
  const ShapeRules rules{.text_field = config.data.dataset_text_field,
                         .chat_template = text_.chat_template.has_value()};
  try {
    const RawRows rows = data_rows(config, Split::evaluation);
    if (rows.size() == 0) return false;
    with_place(rows.place(0), [&] { read_sample(rows.parse(0), rules); });
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input || choices_.is_given("dataset_test_split")) throw;
    notes_.push_back(
        fmt::format("the data's own rows for evaluation are not used: {}: {}", e.text().place, e.text().cause));
    return false;
  }
}

void Drafting::choose_evaluation() {
  for (const char* key : {"eval_dataset_name", "eval_split"})
    if (choices_.is_given(key)) return;
  if (gives("eval_strategy", "no")) return;
  if (has_own_evaluation()) {
    choices_.add({.key = "eval_dataset_name", .value = request_.data, .reason = "the data has rows for evaluation"});
    return;
  }
  const std::int64_t held = held_out_rows(rows_.size());
  if (held > 0)
    choices_.add(
        {.key = "eval_split",
         .value = held,
         .reason = fmt::format("{} held out, to see whether what is learned holds for others", counted(held, "row"))});
}

void Drafting::measure_with(const Json& more) {
  ResolvedConfig c = config(more);
  c.value.data.max_length.reset();  // to see how long the rows are
  c.value.data.packing = false;
  const TextFolder text = load_text_folder(c.value);
  const DatasetOptions options = dataset_options(c.value, Split::train);
  const Dataset built = build_dataset(spread_rows(rows_, kMeasuredRows), options, text.tools(), pool_);
  require_vocabulary(c.value, built, Split::train);
  measured_ = built.statistics();
  course_.warnings = notes_;
  for (const RowNotes::Note& note : RowNotes().of(measured_, text, c.value))
    if (note.warns) course_.warnings.push_back(note.text);
}

/// Prepares rows, which fails if a maximum length below the longest row leaves nothing to learn.
void Drafting::require_rows(const ResolvedConfig& config) {
  const Config& c = config.value;
  if (c.data.max_length.value_or(measured_.max()) >= measured_.max()) return;
  build_dataset(spread_rows(rows_, kMeasuredRows), dataset_options(c, Split::train), load_text_folder(c).tools(),
                pool_);
}

void Drafting::measure() {
  const std::string_view preset = preset_of(allowed_methods().front());
  measure_with({{"preset", preset}});
  if (measured_.unplaced.count * 2 > measured_.source_rows && !choices_.is_given("assistant_only_loss")) {
    choices_.add({.key = "assistant_only_loss",
                  .value = false,
                  .reason = "the answers cannot be located in what the chat template writes"});
    measure_with({{"preset", preset}});
  }
  if (measured_.rows == 0)
    fail(ErrorKind::input, {.cause = "no row has anything to learn",
                            .place = request_.data,
                            .remedy = course_.warnings.empty() ? "" : course_.warnings.front()});
}

}  // namespace qtrain::init
