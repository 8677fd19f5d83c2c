#include "text/tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "text/find.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr int kMaxTextGrowth = 256;

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      if (!raw_bytes(token, bytes)) bytes += token;  // for example an added token
    tokens.assign(1, utf8_lossy(bytes));
  }
};

std::optional<char> byte_token(const std::string& t) {
  if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : t.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value * 16 + (std::isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return static_cast<char>(value);
}

class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_token(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& t : tokens) all += t;
    tokens.assign(1, all);
  }
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const JsonView& json)
      : finder_(find_pattern(json.at("pattern"))), content_(json.at("content").text()) {}
  double growth() const override { return 1 + static_cast<double>(content_.size()); }  // a copy after every byte
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      std::string out;
      std::size_t last = 0;
      finder_(t, [&](std::size_t begin, std::size_t end) {
        out.append(t, last, begin - last).append(content_);
        last = end;
      });
      t = out.append(t, last);
    }
  }

 private:
  Finder finder_;
  std::string content_;
};

class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const JsonView& json)
      : content_(json.at("content").text()), start_(times(json, "start")), stop_(times(json, "stop")) {
    if (content_.empty()) json.at("content").refuse("must not be empty");
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      std::string_view left = t;
      for (std::int64_t i = 0; i < start_ && left.starts_with(content_); ++i) left.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && left.ends_with(content_); ++i) left.remove_suffix(content_.size());
      if (left.size() < t.size()) t = std::string(left);
    }
  }

 private:
  static std::int64_t times(const JsonView& json, const char* key) {
    const auto value = json.find(key);
    return value ? value->integer({0, std::numeric_limits<std::int32_t>::max()}) : 0;
  }
  std::string content_;
  std::int64_t start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const JsonView& json)
      : replacement_(json.text("replacement", "\xE2\x96\x81")),
        strips_(json.find("prepend_scheme") ? json.at("prepend_scheme").text() != "never"
                                            : json.flag("add_prefix_space", true)) {
    if (replacement_.empty()) json.at("replacement").refuse("must not be empty");
  }
  // Like the library, removes every replacement character of the first token.
  void apply(std::vector<std::string>& tokens) const override {
    std::string_view space = strips_ ? "" : " ";
    for (std::string& t : tokens) {
      std::string out;
      std::size_t last = 0;
      for (std::size_t at = 0; (at = find_text(t, replacement_, at)) != std::string::npos;
           last = at += replacement_.size())
        out.append(t, last, at - last).append(space);
      t = out.append(t, last);
      space = " ";
    }
  }

 private:
  std::string replacement_;
  bool strips_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(const JsonView& list) {
    list.each([&](const JsonView& step) {
      if (auto d = make_decoder(step)) steps_.push_back(std::move(d));
    });
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }
  double growth() const override {
    double all = 1;
    for (const auto& step : steps_) all *= step->growth();
    return all;
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

std::unique_ptr<Decoder> decoder_of_type(const JsonView& json) {
  const std::string& type = json.at("type").text();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(json);
  if (type == "Strip") return std::make_unique<StripDecoder>(json);
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(json);
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(json.at("decoders"));
  fail(ErrorKind::input, {.cause = "decoder \"" + type + "\" is not supported",
                          .remedy = "supported: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence"});
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonView& json) {
  if (json.is_null()) return nullptr;
  std::unique_ptr<Decoder> made = decoder_of_type(json);
  if (made->growth() > kMaxTextGrowth)
    json.refuse(fmt::format("its Replace rules may lengthen a text more than {} times", kMaxTextGrowth),
                "download the file again, or shorten their replacements");
  return made;
}

}  // namespace qtrain
