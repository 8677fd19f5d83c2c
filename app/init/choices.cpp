#include "app/init/choices.h"

#include <algorithm>
#include <utility>

#include "config/keys.h"

namespace qtrain::init {

Json value_of_word(const std::string& word) {
  Json value = Json::parse(word, nullptr, false);
  return value.is_discarded() ? Json(word) : value;
}

const std::string* Choices::given_value(const std::string& key) const {
  const std::string* last = nullptr;
  for (const auto& [written, value] : given_)
    if (canonical_key(written) == key) last = &value;
  return last;
}

Json Choices::given(const std::string& key) const {
  const std::string* word = given_value(key);
  return word ? value_of_word(*word) : Json(Json::value_t::discarded);
}

Json Choices::take(Choice choice) {
  if (confirm_) choice.value = confirm_(choice);
  all_.push_back(std::move(choice));
  return all_.back().value;
}

Json Choices::add(Choice choice) {
  if (const std::string* word = given_value(choice.key))
    return take({.key = choice.key, .value = value_of_word(*word), .reason = "as given", .given = true});
  return take(std::move(choice));
}

Json Choices::ask(Choice choice) {
  choice.asked = true;
  return add(std::move(choice));
}

void Choices::replace(Choice choice) {
  const auto at = std::ranges::find(all_, choice.key, &Choice::key);
  if (at == all_.end())
    add(std::move(choice));
  else if (!is_given(choice.key))
    *at = std::move(choice);
}

Choices Choices::unconfirmed() const {
  Choices silent = *this;
  silent.confirm_ = nullptr;
  return silent;
}

Json Choices::document() const {
  Json document = Json::object();
  for (const Choice& c : all_) document[c.key] = c.value;
  return document;
}

Overrides Choices::unused() const {
  Overrides out;
  for (const auto& entry : given_)
    if (std::ranges::none_of(all_, [&](const Choice& c) { return canonical_key(entry.first) == c.key; }))
      out.push_back(entry);
  return out;
}

}  // namespace qtrain::init
