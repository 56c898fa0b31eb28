/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - model files: what tensors are in them, and what is said of tensors in a store
 *
 * What this folder offers to the commands; the headers that are named here and no others.
 *
 *   open               a model from what a user names: files, an index, a directory
 *   safetensors        a model from its files, validated wholly; its metadata for a store
 *   long_value         what is too long for an entry, and lies in an allocation
 *   gguf               what a GGUF file has beside its tensors, in a store and back
 *   safetensors_write  what a file says, made from what a store says
 *   tensor_value       what the metadata value of a tensor says, whoever wrote it
 *   pack               which tensor goes where in how many allocations
 *
 * All but the finding and opening of files is pure. Knows no store and moves no tensor's bytes;
 * prints nothing.
 */
#ifndef GMSFS_MODEL_MODEL_H
#define GMSFS_MODEL_MODEL_H

#include "model/gguf.h"
#include "model/long_value.h"
#include "model/open.h"
#include "model/pack.h"
#include "model/safetensors.h"
#include "model/safetensors_write.h"
#include "model/tensor_value.h"

#endif
