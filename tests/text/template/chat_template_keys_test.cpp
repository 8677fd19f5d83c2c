#include <gtest/gtest.h>

#include "core/formats/json.h"
#include "tests/core/colliding_keys.h"
#include "text/template/chat_template.h"

namespace qtrain {
namespace {

TEST(ChatTemplate, KeysOfAMessageThatCollideTakeNoLonger) {
  constexpr std::size_t kKeys = 8000;
  const ChatTemplate chat("{{ messages[0].role }}", "t", {});
  const auto seconds = [&](const std::vector<std::string>& keys) {
    std::string text = R"([{"role": "user")";
    for (const std::string& key : keys) text += ",\"" + key + "\":0";
    const Json messages = parse_json(text + "}]", "x");
    return hostile::cpu_seconds([&] { EXPECT_EQ(chat.render({.messages = &messages}).text, "user"); });
  };
  EXPECT_LT(seconds(hostile::texts_of_one_hash(kKeys)), 5 * seconds(hostile::ordinary_texts(kKeys)));
}

}  // namespace
}  // namespace qtrain
