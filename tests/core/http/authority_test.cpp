#include "core/http/authority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace qtrain::http {
namespace {

TEST(Authority, IsAHostAndPerhapsAPort) {
  for (const auto& [authority, host] :
       std::vector<std::pair<std::string, std::string>>{{"a", "a"},
                                                        {"a:80", "a"},
                                                        {"a:", "a"},
                                                        {"A-b_c.d:65535", "A-b_c.d"},
                                                        {"127.0.0.1:1", "127.0.0.1"},
                                                        {"[::1]", "::1"},
                                                        {"[::1]:80", "::1"},
                                                        {"[fe80::7%eth0]", "fe80::7"},
                                                        {"[fe80::7%25e_0]:8", "fe80::7"},
                                                        {"[fe80::7%2]", "fe80::7"}})
    EXPECT_EQ(host_of(authority), host);
  for (const char* bad :
       {"",       ":80",      "a:b",       "a:123456", "::1",       "[::1",     "[::1]80",  "[a]",     "[]",
        "a b",    "a,b",      "a@b",       "a/",       "a\\b",      "a%41",     "\xc3\xa9", "a:80:80", "a?",
        "[::1%]", "[::1%25]", "[::1%a%b]", "[%eth0]",  "[::1%a b]", "[a%eth0]", "[::1%eth0"})
    EXPECT_THROW(host_of(bad), Problem) << bad;
}

struct Asked {
  std::string host, address;
  bool answered;
};
TEST(Names, OfAServer) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const std::string own = name;
  for (const Asked& a : std::vector<Asked>{{"LOCALHOST", "127.0.0.1", true},
                                           {"::1", "127.0.0.1", true},
                                           {"::ffff:127.0.0.1", "127.0.0.1", true},
                                           {"rebound.example.org", "127.0.0.1", false},
                                           {"10.0.0.1", "127.0.0.1", false},
                                           {own, "127.0.0.1", false},
                                           {"10.0.0.1", "0.0.0.0", true},
                                           {"fd00::1", "::", true},
                                           {own, "0.0.0.0", true},
                                           {own.substr(0, own.find('.')) + ".LOCAL", "10.0.0.1", true},
                                           {own.substr(0, own.find('.')) + ".rebound.org", "0.0.0.0", false},
                                           {"Box.Example.org", "box.example.org", true},
                                           {"rebound.example.org", "0.0.0.0", false},
                                           {"x" + own, "0.0.0.0", false}})
    EXPECT_EQ(answers_to(a.host, a.address), a.answered) << a.host << " at " << a.address;
}

// Runs before the other tests, in a process of its own that has not looked up the name yet.
TEST(NamesDeathTest, OfAServerThatCanStartNoThread) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become a user whose processes are limited";
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const std::string own = name, asked = own.substr(0, own.find('.')) + ".rebound.org";
  const auto ask_without_threads = [&] {
    constexpr int kAnswered = 1, kNobody = 1'000'000;
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
    ::_exit(answers_to(asked, "0.0.0.0") ? kAnswered : 0);
  };
  EXPECT_EXIT(ask_without_threads(), ::testing::ExitedWithCode(0), "");
}

Request of(std::vector<Header> headers) {
  Request request;
  request.headers = std::move(headers);
  return request;
}

TEST(Origin, OfAnotherPageIsRefused) {
  EXPECT_NO_THROW(require_own_origin(of({{"host", "LOCALHOST:80"}, {"origin", "http://localhost:80"}}), "127.0.0.1"));
  EXPECT_NO_THROW(require_own_origin(of({{"host", "localhost"}}), "127.0.0.1"));
  for (const char* origin : {"http://example.org", "null", "http://localhost:81", "https://localhost:80", ""})
    EXPECT_THROW(require_own_origin(of({{"host", "localhost:80"}, {"origin", origin}}), "127.0.0.1"), Problem)
        << origin;
  EXPECT_THROW(require_own_origin(of({{"host", "example.org"}}), "127.0.0.1"), Problem);
}

// A browser sends no Origin for an image, a script, a frame, or a page that is opened.
TEST(Origin, OfAPageThatSendsNoneIsRefused) {
  struct Case {
    const char *method, *site, *mode, *dest;
    bool answered;
  };
  for (const Case& c : {Case{"GET", "same-origin", "cors", "empty", true},
                        {"POST", "same-origin", "cors", "empty", true},
                        {"GET", "none", "navigate", "document", true},
                        {"GET", "cross-site", "navigate", "document", true},  // a link that the user follows
                        {"HEAD", "same-site", "navigate", "document", true},
                        {"POST", "cross-site", "navigate", "document", false},  // a form
                        {"GET", "cross-site", "navigate", "iframe", false},
                        {"GET", "cross-site", "no-cors", "script", false},
                        {"GET", "cross-site", "no-cors", "image", false},
                        {"GET", "same-site", "no-cors", "image", false},  // a server at another port
                        {"GET", "cross-site", "no-cors", "document", false},
                        {"GET", "cross-site", "", "", false},
                        {"GET", "", "no-cors", "image", false},
                        {"GET", "another", "no-cors", "image", false}}) {
    Request request =
        of({{"host", "localhost"}, {"sec-fetch-site", c.site}, {"sec-fetch-mode", c.mode}, {"sec-fetch-dest", c.dest}});
    request.method = c.method;
    const auto ask = [&] { require_own_origin(request, "127.0.0.1"); };
    if (c.answered)
      EXPECT_NO_THROW(ask()) << c.method << c.site << c.mode << c.dest;
    else
      EXPECT_THROW(ask(), Problem) << c.method << c.site << c.mode << c.dest;
  }
  Request twice = of({{"host", "localhost"}, {"sec-fetch-site", "none"}, {"sec-fetch-site", "cross-site"}});
  EXPECT_THROW(require_own_origin(twice, "127.0.0.1"), Problem);
}

}  // namespace
}  // namespace qtrain::http
