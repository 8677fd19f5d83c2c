#include <functional>

#include "app/cli/hub_arguments.h"
#include "app/commands/commands.h"
#include "config/training_sources.h"
#include "data/encode.h"
#include "model/model_source.h"
#include "text/template/load.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

using TextOfRow = std::function<std::string(const Json& row)>;

int write_texts(const Arguments& args, const RawRows& rows, const TextOfRow& text_of) {
  Json texts = Json::array();
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    std::string text = with_place(rows.place(i), [&] { return text_of(rows.parse(i)); });
    args.log().result_stream(written_result(dump_json(Json(text)) + "\n", ResultText::data));
    if (args.json()) texts.push_back(std::move(text));
  }
  args.give({.text = "", .json = std::move(texts)});
  return 0;
}

// Renders the training rows of a config, or of --input instead, exactly as training tokenizes them.
int render_config(const Arguments& args) {
  for (const char* flag : {"model", "add_generation_prompt"})
    if (args.has(flag))
      fail(ErrorKind::usage, {.cause = std::string("--") + flag + " cannot be combined with a config",
                              .remedy = "leave one of them out: a config's rows are always rendered as in training"});
  const ResolvedConfig config = load_run_config(args, args.operand(0), {.model = ModelFiles::text});
  const TextFolder text = load_text_folder(config.value);
  const RowEncoder encoder(dataset_options(config.value, Split::train), text.tools());
  RawRows rows;
  if (const auto input = args.text("input")) {
    const DataSource source{
        .files = {*input}, .columns = columns_of(config.value.data), .shared = {.columns = true, .message_keys = true}};
    rows = source_rows({source}, source_files({source}, Split::train))[0];
  } else {
    rows = data_rows(config.value, Split::train);
  }
  return write_texts(args, rows, [&](const Json& row) { return encoder.text_of(row); });
}

// Template variables of a row: all columns without a meaning of their own, and its chat_template_kwargs.
Json variables_of(const Json& row, const Sample& sample) {
  Json variables = row;
  for (const char* key :
       {"messages", "prompt", "completion", "conversations", "tools", "documents", "chat_template_kwargs"})
    variables.erase(key);
  variables.update(sample.template_kwargs);
  return variables;
}

}  // namespace

int run_render(const Arguments& args) {
  if (!args.operands().empty()) return render_config(args);
  const std::filesystem::path folder = text_folder(args.required("model"));
  const RawRows rows(resolve_data_files({args.required("input")}, Split::evaluation));
  const ChatTemplate chat = load_chat_template(folder);
  return write_texts(args, rows, [&](const Json& row) {
    const Sample sample = read_sample(row, {});
    if (sample.shape != RowShape::chat && sample.shape != RowShape::chat_pair)
      fail(ErrorKind::input, {.cause = "the row has no \"messages\"",
                              .remedy = "to see rows of other shapes, give the run's config instead of a model"});
    const Json messages = conversation_of(sample), documents = row.value("documents", Json()),
               variables = variables_of(row, sample);
    return chat
        .render({.messages = &messages,
                 .tools = &sample.tools,
                 .documents = &documents,
                 .add_generation_prompt = args.has("add_generation_prompt"),
                 .extra = &variables})
        .text;
  });
}

}  // namespace qtrain
