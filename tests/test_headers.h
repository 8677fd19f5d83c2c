#pragma once
// What most tests include, precompiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "core/tensor.h"
