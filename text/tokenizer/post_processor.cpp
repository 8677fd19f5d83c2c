#include "text/tokenizer/post_processor.h"

#include "text/tokenizer/model.h"

namespace qtrain {
namespace {

std::int32_t token_id(const JsonView& json) {
  return static_cast<std::int32_t>(json.integer({0, kMaxTokenId}));
}

SpecialFrame read_template(const JsonView& json) {
  SpecialFrame frame;
  bool seen = false;
  json.at("single").each([&](const JsonView& item) {
    if (item.find("Sequence")) {
      if (seen) item.refuse("a template that repeats the text is not supported");
      seen = true;
      return;
    }
    const std::string& name = item.at("SpecialToken").at("id").text();
    json.at("special_tokens").at(name).at("ids").each([&](const JsonView& id) {
      (seen ? frame.after : frame.before).push_back(token_id(id));
    });
  });
  return frame;
}

// Format: ["[SEP]", 102]
std::vector<std::int32_t> one_token(const JsonView& pair) {
  return {token_id(pair.entry(1))};
}

}  // namespace

SpecialFrame make_special_frame(const JsonView& json) {
  if (json.is_null()) return {};
  const std::string& type = json.at("type").text();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return read_template(json);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {.before = one_token(json.at("cls")), .after = one_token(json.at("sep"))};
  if (type != "Sequence")
    fail(ErrorKind::input, {.cause = "post-processor \"" + type + "\" is not supported",
                            .remedy = "supported: TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, "
                                      "Sequence"});
  SpecialFrame all;
  json.at("processors").each([&](const JsonView& step) {
    const SpecialFrame one = make_special_frame(step);
    all.before.insert(all.before.begin(), one.before.begin(), one.before.end());
    all.after.insert(all.after.end(), one.after.begin(), one.after.end());
  });
  return all;
}

}  // namespace qtrain
