package kv_test

import ()
