#include "data/tokenizer/post_processor.h"

namespace qtrain {
namespace {

SpecialFrame read_template(const Json& json) {
  SpecialFrame frame;
  bool seen = false;
  for (const Json& item : json.at("single")) {
    if (item.contains("Sequence")) {
      if (seen)
        fail(ErrorKind::input,
             {.cause = "a template that repeats the text is not supported", .place = "post_processor"});
      seen = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id");
    for (const Json& id : json.at("special_tokens").at(name).at("ids"))
      (seen ? frame.after : frame.before).push_back(id.get<std::int32_t>());
  }
  return frame;
}

}  // namespace

SpecialFrame make_special_frame(const Json& json) {
  if (json.is_null()) return {};
  const std::string type = json.at("type");
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return read_template(json);
  if (type != "Sequence")
    fail(ErrorKind::input, {.cause = "post-processor \"" + type + "\" is not supported",
                            .remedy = "supported: TemplateProcessing, ByteLevel, Sequence"});
  SpecialFrame all;
  for (const Json& step : json.at("processors")) {
    const SpecialFrame one = make_special_frame(step);
    all.before.insert(all.before.begin(), one.before.begin(), one.before.end());
    all.after.insert(all.after.end(), one.after.begin(), one.after.end());
  }
  return all;
}

}  // namespace qtrain
