#include "tests/fuzz/server_targets.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "app/serve/api_error.h"
#include "app/serve/api_request.h"
#include "app/serve/tool_calls.h"
#include "core/http/authority.h"
#include "core/http/request_reader.h"
#include "tests/app/serve/served_model.h"
#include "tests/core/temp_folder.h"

namespace qtrain::fuzz {
namespace {

/// Bytes that arrive in pieces.
class Pieces final : public http::Source {
 public:
  Pieces(std::string_view bytes, std::size_t size) : bytes_(bytes), size_(size) {}
  ssize_t read(char* data, std::size_t size) override {
    const std::size_t n = std::min({size, size_, bytes_.size()});
    std::memcpy(data, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return static_cast<ssize_t>(n);
  }

 private:
  std::string_view bytes_;
  std::size_t size_;
};

void require_clean(const http::Request& request, const http::RequestReader::Limits& limits) {
  const auto clean = [](std::string_view text) {
    return text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos;
  };
  check(request.body.size() <= limits.body, "a body is larger than its limit");
  check(request.headers.size() <= limits.head.headers, "there are more headers than the limit");
  check(clean(request.method) && clean(request.target) && !request.target.empty(), "a request line has a line break");
  for (const http::Header& h : request.headers)
    check(clean(h.name) && clean(h.value) && h.name == http::lower_case(h.name), "a header has a line break");
  check(std::ranges::count(request.headers, "host", &http::Header::name) == 1 || request.version == 10, "not one host");
  check(!request.has("content-length") || !request.has("transfer-encoding"), "two lengths");
}

/// All requests up to the first one that is refused, as text.
std::string requests_of(http::Source& source) {
  const http::RequestReader::Limits limits{.head = {}, .body = 4096};
  http::RequestReader reader(source, limits);
  std::string all;
  try {
    for (;;) {
      http::Request request;
      reader.read_head(request);
      reader.read_body();
      require_clean(request, limits);
      all += request.method + " " + request.target + " " + request.body + "\n";
      for (const http::Header& h : request.headers) all += h.name + ": " + h.value + "\n";
      try {
        http::require_own_origin(request, "127.0.0.1");
        http::percent_decoded(request.path());
      } catch (const http::Problem&) {
        all += "refused\n";
      }
      if (!http::keeps_connection(request)) return all;
    }
  } catch (const http::Problem& problem) {
    check(problem.status() >= 400 && problem.status() < 600, "a problem without a status");
  } catch (const http::SourceEnded&) {
  }
  return all;
}

/// A declared model, whose weights are not read.
struct Served {
  Served() {
    testing::write_noise_model(folder / "model", folder / "adapter");
    ctx.emplace(Device{}, MatmulPrecision::storage, 1);
    models.emplace(*ctx, serve::ServedModels::Request{.base = {.model = (folder / "model").string()}, .adapters = {}});
  }
  testing::TempFolder folder;
  std::optional<Ctx> ctx;
  std::optional<serve::ServedModels> models;
};

void body(serve::Endpoint endpoint, std::string_view bytes) {
  static const Served served;
  const serve::RequestLimits limits{.context = 256};
  try {
    const serve::ApiRequest read = serve::read_request(endpoint, bytes, *served.models, limits);
    check(read.answers() >= 1 && read.max_new_tokens >= 1, "a request for nothing");
    for (const auto& prompt : read.prompts)
      check(!prompt.empty() && static_cast<std::int64_t>(prompt.size()) < limits.context, "a prompt beyond the limit");
  } catch (const serve::ApiError& e) {
    static_cast<void>(dump_json(Json::parse(e.json().dump(-1, ' ', false, Json::error_handler_t::replace))));
  }
}

}  // namespace

void http_requests(std::string_view bytes) {
  Pieces whole(bytes, bytes.size() + 1), single(bytes, 1), some(bytes, 7);
  const std::string all = requests_of(whole);
  check(requests_of(single) == all && requests_of(some) == all, "requests depend on how they are cut");
}

void chat_body(std::string_view bytes) {
  body(serve::Endpoint::chat, bytes);
}

void completion_body(std::string_view bytes) {
  body(serve::Endpoint::completions, bytes);
}

void tool_calls(std::string_view bytes) {
  constexpr std::size_t kPiece = 7;
  serve::ToolCallReader reader;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) reader.push(std::string(bytes.substr(at, kPiece)));
  for (const serve::ToolCall& call : reader.finish().calls)
    check(Json::accept(call.arguments), "arguments that are no JSON");
}

}  // namespace qtrain::fuzz
