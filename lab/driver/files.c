// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sysfs files whose text is known at load. Which files a unit has depends on the
 * machine, so the kernel's macros for fixed files do not fit.
 */
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "processor.h"

/* As many as lab_nb can have: 16 nodes of nine files, 64 links of three. */
#define FOLDER_FILES 400

struct text_file {
	struct list_head list;
	struct device_attribute attribute;
	char *name, *text;
};

struct folder {
	struct list_head list;
	struct attribute_group group;
	unsigned int used;
	struct attribute *attributes[FOLDER_FILES + 1];
};

static LIST_HEAD(files);
static LIST_HEAD(folders);
static bool failed;

static ssize_t text_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return sysfs_emit(page, "%s\n", container_of(attribute, struct text_file, attribute)->text);
}

void rp_add_file(struct attribute_group *group, const char *name, const char *text)
{
	struct folder *folder;
	struct text_file *file;

	if (!group)
		return;
	folder = container_of(group, struct folder, group);
	file = kzalloc(sizeof(*file), GFP_KERNEL);
	if (!file || folder->used == FOLDER_FILES) {
		kfree(file);
		failed = true;
		return;
	}
	list_add(&file->list, &files);
	file->name = kstrdup(name, GFP_KERNEL);
	file->text = kstrdup(text, GFP_KERNEL);
	if (!file->name || !file->text) {
		failed = true;
		return;
	}
	sysfs_attr_init(&file->attribute.attr);
	file->attribute.attr.name = file->name;
	file->attribute.attr.mode = 0444;
	file->attribute.show = text_show;
	folder->attributes[folder->used++] = &file->attribute.attr;
}

struct attribute_group *rp_folder(const char *name, const struct rp_text *texts)
{
	struct folder *folder = kzalloc(sizeof(*folder), GFP_KERNEL);

	if (!folder) {
		failed = true;
		return NULL;
	}
	list_add(&folder->list, &folders);
	folder->group.name = name;
	folder->group.attrs = folder->attributes;
	for (; texts && texts->name; texts++)
		rp_add_file(&folder->group, texts->name, texts->text);
	return &folder->group;
}

/* A file with the list of all CPUs. */
void rp_add_cpus(struct attribute_group *group, const char *name)
{
	char text[32];

	scnprintf(text, sizeof(text), "%*pbl", cpumask_pr_args(cpu_possible_mask));
	rp_add_file(group, name, text);
}

bool rp_files_failed(void)
{
	return failed;
}

void rp_files_free(void)
{
	struct folder *folder, *next_folder;
	struct text_file *file, *next_file;

	list_for_each_entry_safe(file, next_file, &files, list) {
		kfree(file->name);
		kfree(file->text);
		kfree(file);
	}
	list_for_each_entry_safe(folder, next_folder, &folders, list)
		kfree(folder);
	INIT_LIST_HEAD(&files);
	INIT_LIST_HEAD(&folders);
	failed = false;
}
