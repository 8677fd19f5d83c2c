#pragma once
// Headers that most tests include, precompiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/tensor.h"

// JSON values are instantiated only in test_headers.cpp.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class std::vector<nlohmann::ordered_json>;
extern template struct nlohmann::ordered_map<std::string, nlohmann::ordered_json>;
