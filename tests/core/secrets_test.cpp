#include "core/secrets.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/formats/json_object.h"

namespace qtrain {
namespace {

TEST(Secrets, AreKnownByTheirNames) {
  for (const char* name : {"hub_token",
                           "hf_hub_token",
                           "token",
                           "HF_TOKEN",
                           "hfToken",
                           "hub-token",
                           "use_auth_token",
                           "password",
                           "db.password",
                           "smtp_pass",
                           "passphrase",
                           "api_key",
                           "apiKey",
                           "OPENAI_API_KEY",
                           "apikey",
                           "WANDB_API_KEY",
                           "client_secret",
                           "AWS_SECRET_ACCESS_KEY",
                           "aws_access_key_id",
                           "private_key",
                           "headers",
                           "extra_headers",
                           "http_header",
                           "Authorization",
                           "credentials",
                           "cookie",
                           "slack_webhook_url",
                           "connection_string",
                           "auth_tokens",
                           "DBPassword",
                           "HFToken",
                           "SSHKey",
                           "AWSAccessKeyId",
                           "PGPASSWORD",
                           "userpass",
                           "hftoken",
                           "password1",
                           "ACCESS_TOKEN_2",
                           "TELEGRAM_BOT_TOKEN",
                           "slack_bot_token",
                           "slackUserToken",
                           "KAGGLE_KEY",
                           "MASTER_KEY",
                           "GITHUB_PAT",
                           "kaggle_key",
                           "refresh_tokens"})
    EXPECT_TRUE(is_secret_name(name)) << name;
  for (const char* name : {"eos_token",
                           "pad_token",
                           "unk_token",
                           "mask_token",
                           "image_token",
                           "eos_token_id",
                           "additional_special_tokens",
                           "max_tokens",
                           "max_new_tokens",
                           "tokenizer",
                           "tokenizer_name_or_path",
                           "token_cache_dir",
                           "num_input_tokens_seen",
                           "key",
                           "keys",
                           "text_key",
                           "template_thinking_key",
                           "monkey",
                           "pass_through",
                           "author",
                           "secretary",
                           "bot_token",
                           "user_token",
                           "padToken",
                           "EOSTokenId",
                           "MAX_TOKENS",
                           "TOKENIZERS_PARALLELISM",
                           "patience",
                           "keyword",
                           "",
                           "name"})
    EXPECT_FALSE(is_secret_name(name)) << name;
}

TEST(Secrets, StandAsRedactedInValues) {
  struct Case {
    std::string name;
    Json value, redacted;
  };
  for (const auto& [name, value, expected] : std::vector<Case>{
           {"hub_token", "hf_x", "<redacted>"},
           {"hub_token", nullptr, nullptr},
           {"hub_token", "", ""},
           {"token", true, true},
           {"pin_token", 1234, "<redacted>"},
           {"run_name", "mine", "mine"},
           {"headers", {{"Accept", "x"}}, "<redacted>"},
           {"env", {{"WANDB_API_KEY", "k"}, {"PATH", "/bin"}}, {{"WANDB_API_KEY", "<redacted>"}, {"PATH", "/bin"}}},
           {"env", {"HF_TOKEN=abc", "PATH=/bin"}, {"HF_TOKEN=<redacted>", "PATH=/bin"}},
           {"env", {"Authorization: Bearer x"}, {"Authorization:<redacted>"}},
           {"env", Json::array({{{"name", "HF_TOKEN"}, {"value", "abc"}}}),
            Json::array({{{"name", "HF_TOKEN"}, {"value", "<redacted>"}}})},
           {"env", "A=1 HF_TOKEN=abc B=2", "A=1 HF_TOKEN=<redacted> B=2"},
           {"env", "export HF_TOKEN=abc", "export HF_TOKEN=<redacted>"},
           {"env", {"--token", "abc", "x"}, {"--token", "<redacted>", "x"}},
           {"env", "run --token abc --steps 3", "run --token <redacted> --steps 3"},
           {"env", "run --hub_token=abc", "run --hub_token=<redacted>"},
           {"note", "Bearer abc", "Bearer <redacted>"},
           {"note", "of a  text\nin lines ", "of a  text\nin lines "},
           {"a", {{"b", {{"c", {{"password", "p"}}}}}}, {{"b", {{"c", {{"password", "<redacted>"}}}}}}},
           {"endpoint", "https://u:p@host/x", "https://<redacted>@host/x"}})
    EXPECT_EQ(redacted(name, value), expected) << name << " " << value;
}

TEST(Secrets, OfUrlsStandAsRedactedInTexts) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"see https://user:pass@host:80/a@b, please", "see https://<redacted>@host:80/a@b, please"},
           {"\"https://hf_token@huggingface.co/x\": no such file",
            "\"https://<redacted>@huggingface.co/x\": no such file"},
           {"s3://key:p@ss@bucket and http://b:c@d", "s3://<redacted>@bucket and http://<redacted>@d"},
           {"https://host/x?token=abc&size=3", "https://host/x?token=<redacted>&size=3"},
           {"https://host/x?a=b&X-Amz-Signature=abc#f", "https://host/x?a=b&X-Amz-Signature=<redacted>#f"},
           {"https://host/x#access_token=abc&a=b", "https://host/x#access_token=<redacted>&a=b"},
           {"https://host/x?a=b#id_token=abc", "https://host/x?a=b#id_token=<redacted>"},
           {"https://host/x?access%5Ftoken=abc&b=%", "https://host/x?access%5Ftoken=<redacted>&b=%"},
           {"https://host/x?key=abc", "https://host/x?key=<redacted>"},
           {"https://host/x?eos_token=abc", "https://host/x?eos_token=abc"},
           {"https://host/path user@example.org", "https://host/path user@example.org"},
           {"a://b", "a://b"},
           {"://u:p@h", "://u:p@h"},
           {"", ""}})
    EXPECT_EQ(without_credentials(text), expected);
}

// Errors show the beginning of any value without its secrets.
TEST(Secrets, AreFoundInTimeThatGrowsWithTheValue) {
  constexpr std::size_t kMembers = 100'000, kBytes = std::size_t{1} << 20;
  constexpr std::chrono::seconds kSoon{10};  // a search of all earlier members or bytes takes minutes
  JsonObject members;
  for (std::size_t i = 0; i < kMembers; ++i) members.add("k" + std::to_string(i), 0);
  std::string words, equals, schemes;
  for (std::size_t i = 0; i < kBytes / 4; ++i) words += "a-b ", equals += "a=b&", schemes += "x://";
  for (const Json& value : {members.take(), Json("http://x?" + std::string(kBytes, '&')),
                            Json("http://x?" + std::string(kBytes, '#')), Json("http://x?" + equals), Json(words),
                            Json(schemes), Json("x://" + std::string(kBytes, '@')), Json(std::string(kBytes, '='))}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(redacted("note", value).type(), value.type());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon) << value.dump().substr(0, 40);
  }
}

}  // namespace
}  // namespace qtrain
