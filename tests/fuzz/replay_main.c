/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_main.c - runs a fuzz target's stored inputs without libFuzzer
 *
 * Arguments are files and folders of files. The empty input always runs, so a
 * target without a corpus is still called once.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Exact allocation, so that a sanitizer sees the first byte read past the end. */
static int
replay_file(const char *path, size_t bytes)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	int rc = -1;

	if (file == NULL) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	data = malloc(bytes == 0 ? 1 : bytes);
	if (data == NULL || fread(data, 1, bytes, file) != bytes) {
		fprintf(stderr, "%s: cannot read %zu bytes\n", path, bytes);
		goto close_file;
	}
	/* Said before, so that the input is known when the target crashes. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, bytes);
	rc = 0;
close_file:
	free(data);
	fclose(file);
	return rc;
}

static int
replay(const char *path, size_t *count)
{
	struct stat status;
	struct dirent *entry;
	char child[4096];
	DIR *dir;
	int rc = 0;

	if (stat(path, &status) != 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	if (!S_ISDIR(status.st_mode)) {
		(*count)++;
		return replay_file(path, (size_t)status.st_size);
	}
	dir = opendir(path);
	if (dir == NULL) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	while (rc == 0 && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >=
		    (int)sizeof(child)) {
			fprintf(stderr, "%s: name too long\n", entry->d_name);
			rc = -1;
		} else {
			rc = replay(child, count);
		}
	}
	closedir(dir);
	return rc;
}

int
main(int argc, char **argv)
{
	size_t count = 0;

	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++) {
		if (replay(argv[i], &count) != 0)
			return EXIT_FAILURE;
	}
	printf("replayed %zu inputs\n", count);
	return EXIT_SUCCESS;
}
