#include "hub/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "tests/core/temp_folder.h"
#include "tests/errors.h"
#include "tests/hub/variables.h"

namespace qtrain {
namespace {

using testing::TempFolder;

struct CacheCase {
  std::map<std::string, std::string> variables;
  std::string cache, token_file;
};

// The expected paths are those of huggingface_hub.constants with these variables.
TEST(HubEnvironment, FindsTheCacheAsHuggingfaceHubDoes) {
  const CacheCase cases[] = {
      {{{"HOME", "/h"}}, "/h/.cache/huggingface/hub", "/h/.cache/huggingface/token"},
      {{{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}, "/x/huggingface/hub", "/x/huggingface/token"},
      {{{"HOME", "/h"}, {"HF_HOME", "~/hf"}}, "/h/hf/hub", "/h/hf/token"},
      {{{"HOME", "/h"}, {"D", "/d"}, {"HF_HOME", "${D}/$D/$NONE"}}, "/d//d/$NONE/hub", "/d//d/$NONE/token"},
      {{{"HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}, "/old", "/h/.cache/huggingface/token"},
      {{{"HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", "/new"}},
       "/new",
       "/h/.cache/huggingface/token"},
      {{{"HOME", "/h"}, {"HF_TOKEN_PATH", "/t"}}, "/h/.cache/huggingface/hub", "/t"},
  };
  for (const CacheCase& c : cases) {
    const test::HubVariables variables(c.variables);
    EXPECT_EQ(hub_environment().cache, c.cache);
    EXPECT_EQ(hub_environment().token_file, c.token_file);
  }
}

TEST(HubEnvironment, ReadsTheOtherVariables) {
  const test::HubVariables variables(
      {{"HOME", "/h"}, {"HF_ENDPOINT", "http://127.0.0.1:1//"}, {"HF_HUB_OFFLINE", "yes"}});
  EXPECT_EQ(hub_environment().endpoint, "http://127.0.0.1:1");
  EXPECT_TRUE(hub_environment().offline);
  const test::HubVariables others({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}});
  EXPECT_EQ(hub_environment().endpoint, "https://huggingface.co");
  EXPECT_FALSE(hub_environment().offline);
}

TEST(HubEnvironment, TheTokenIsThatOfTheVariableElseTheStoredOne) {
  const TempFolder home;
  std::ofstream(home.path() / "token") << "hf_stored\n";
  std::map<std::string, std::string> values{{"HF_HOME", home.path().string()}};
  {
    const test::HubVariables variables(values);
    EXPECT_EQ(hub_token(hub_environment()), "hf_stored");
  }
  {
    values["HF_TOKEN"] = " hf_given\n";
    const test::HubVariables variables(values);
    EXPECT_EQ(hub_token(hub_environment()), "hf_given");
  }
  {
    values["HF_TOKEN"] = "hf_a\x01b";
    const test::HubVariables variables(values);
    EXPECT_EQ(test::error_of([] { hub_token(hub_environment()); }).kind(), ErrorKind::usage);
  }
  values["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  const test::HubVariables variables(values);
  EXPECT_EQ(hub_token(hub_environment()), "");
}

TEST(HubEnvironment, ATokenForgesNoLineOfARequest) {
  EXPECT_EQ(checked_token(" hf_write\n", "hub_token"), "hf_write");
  for (const char* bad : {"hf_write\r\nX-Evil: 1", "hf_w\x7f", "hf w", "hf_\xc3\xa4"}) try {
      checked_token(bad, "hub_token");
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      EXPECT_EQ(e.text().place, "hub_token");
      EXPECT_EQ(std::string(e.what()).find("hf_w"), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace qtrain
