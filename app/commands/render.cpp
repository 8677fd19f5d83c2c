#include "app/commands/commands.h"
#include "data/source/reader.h"
#include "model/model_source.h"
#include "text/template/chat_template.h"
#include "text/template/load.h"
#include "text/template/rendered.h"

namespace qtrain {
namespace {

Json or_null(const Json& row, const char* key) {
  return row.contains(key) ? row[key] : Json();
}

}  // namespace

int run_render(const Arguments& args) {
  const std::filesystem::path folder = text_folder(args.required("model"));
  const RawRows rows(resolve_data_files({args.required("input")}, Split::evaluation));
  const ChatTemplate chat = load_chat_template(folder);
  Json texts = Json::array();
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const Json row = rows.parse(i);
    const Json messages = or_null(row, "messages"), tools = or_null(row, "tools"),
               documents = or_null(row, "documents");
    if (messages.is_null()) fail(ErrorKind::input, {.cause = "the row has no \"messages\"", .place = rows.place(i)});
    Json extra = row;
    for (const char* key : {"messages", "tools", "documents"}) extra.erase(key);
    const Rendered r = with_place(rows.place(i), [&] {
      return chat.render({.messages = &messages,
                          .tools = tools.is_null() ? nullptr : &tools,
                          .documents = documents.is_null() ? nullptr : &documents,
                          .add_generation_prompt = args.has("add_generation_prompt"),
                          .extra = &extra});
    });
    args.log().result_stream(written_result(dump_json(Json(r.text)) + "\n", ResultText::data));
    if (args.json()) texts.push_back(r.text);
  }
  args.give({.text = "", .json = std::move(texts)});
  return 0;
}

}  // namespace qtrain
