#include "data/tokenizer/decoder.h"

#include <algorithm>
#include <optional>

#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      if (!raw_bytes(token, bytes)) bytes += token;  // an added token, say
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
  explicit ReplaceDecoder(const Json& json) : finder_(find_pattern(json.at("pattern"))), content_(json.at("content")) {}
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
  explicit StripDecoder(const Json& json)
      : content_(json.at("content")), start_(json.value("start", 0)), stop_(json.value("stop", 0)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      for (int i = 0; i < start_ && t.starts_with(content_); ++i) t.erase(0, content_.size());
      for (int i = 0; i < stop_ && t.ends_with(content_); ++i) t.resize(t.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const Json& json)
      : replacement_(json.value("replacement", "\xE2\x96\x81")),
        strips_(json.contains("prepend_scheme") ? json["prepend_scheme"] != "never"
                                                : json.value("add_prefix_space", true)) {}
  // The first token loses every replacement character, as in the library.
  void apply(std::vector<std::string>& tokens) const override {
    std::string_view space = strips_ ? "" : " ";
    for (std::string& t : tokens) {
      std::string out;
      std::size_t last = 0;
      for (std::size_t at = 0; (at = t.find(replacement_, at)) != std::string::npos; last = at += replacement_.size())
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
  explicit SequenceDecoder(const Json& list) {
    for (const Json& step : list)
      if (auto d = make_decoder(step)) steps_.push_back(std::move(d));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
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

}  // namespace qtrain
