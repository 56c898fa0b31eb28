/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - model files: the tensors in them, and the description of tensors in a store
 *
 * The commands include the headers named here, and no others of this folder.
 *
 *   open               opens a model from a user's places: files, an index, a directory
 *   safetensors        a fully validated model from its files; its metadata for a store
 *   files              files that a store keeps byte for byte
 *   gguf               header of a GGUF file
 *   safetensors_write  makes the header of a file from the values in a store
 *   tensor_value       parses the metadata value of a tensor, by any writer
 *   pack               distributes the tensors over allocations
 *
 * Pure, except for reading headers (src/source). Knows no store and moves no tensor's bytes; prints
 * nothing.
 */
#ifndef GMSFS_MODEL_MODEL_H
#define GMSFS_MODEL_MODEL_H

#include "model/files.h"
#include "model/gguf.h"
#include "model/open.h"
#include "model/pack.h"
#include "model/safetensors.h"
#include "model/safetensors_write.h"
#include "model/tensor_value.h"

#endif
