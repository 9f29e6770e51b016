/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of objects by number: the links of all lists of a cache lie in one array, for an object is
 * in one list at a time. */
#ifndef PAGETIER_SIM_LIST_H
#define PAGETIER_SIM_LIST_H

#include <stdint.h>

#define PT_NO_OBJECT UINT32_MAX

struct pt_links {
    uint32_t older;
    uint32_t newer;
};

struct pt_list {
    uint32_t oldest;
    uint32_t newest;
};

#define PT_EMPTY_LIST ((struct pt_list){PT_NO_OBJECT, PT_NO_OBJECT})

static inline void pt_list_append(struct pt_list *list, struct pt_links *links, uint32_t object)
{
    links[object] = (struct pt_links){list->newest, PT_NO_OBJECT};
    if (list->newest == PT_NO_OBJECT)
        list->oldest = object;
    else
        links[list->newest].newer = object;
    list->newest = object;
}

static inline void pt_list_remove(struct pt_list *list, struct pt_links *links, uint32_t object)
{
    struct pt_links gone = links[object];

    if (gone.older == PT_NO_OBJECT)
        list->oldest = gone.newer;
    else
        links[gone.older].newer = gone.newer;
    if (gone.newer == PT_NO_OBJECT)
        list->newest = gone.older;
    else
        links[gone.newer].older = gone.older;
}

/* Puts all of `more` behind the newest of `list`, and leaves `more` empty. */
static inline void pt_list_join(struct pt_list *list, struct pt_links *links, struct pt_list *more)
{
    if (more->oldest == PT_NO_OBJECT)
        return;
    links[more->oldest].older = list->newest;
    if (list->newest == PT_NO_OBJECT)
        list->oldest = more->oldest;
    else
        links[list->newest].newer = more->oldest;
    list->newest = more->newest;
    *more = PT_EMPTY_LIST;
}

#endif
