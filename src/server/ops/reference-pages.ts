/**
 * The pages of the API reference: an overview with a search over all operations, and a page for each
 * group of operations. They work without JavaScript; with it, Swagger UI shows and calls the operations.
 */
import type { BundleIndex } from '../../console/bundle.ts';
import { assetPath } from '../../console/console.ts';
import { escapeHtml } from '../../http/escape-html.ts';
import type { OpenApiDocument } from '../../http/openapi/openapi.ts';

interface ListedOperation {
  readonly method: string;
  readonly path: string;
  readonly id: string;
  readonly group: string;
  readonly summary: string;
}

export interface Reference {
  readonly title: string;
  /** Paragraphs about the whole API. */
  readonly about: string;
  /** URL of the OpenAPI document. */
  readonly url: string;
  readonly groups: readonly { readonly name: string; readonly description: string }[];
  readonly operations: readonly ListedOperation[];
  readonly files: BundleIndex;
}

export function referenceOf(document: OpenApiDocument, url: string, files: BundleIndex): Reference {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, operation]) =>
      // A path also has its servers beside its operations.
      'operationId' in operation
        ? {
            method: method.toUpperCase(),
            path,
            id: operation.operationId,
            group: operation.tags[0] ?? '',
            summary: operation.summary,
          }
        : [],
    ),
  );
  const { title, description } = document.info;
  return { title, about: description, url, groups: document.tags, operations, files };
}

function addressOf(group: string): string {
  return `/docs/${group.toLowerCase().replaceAll(' ', '-')}`;
}

/** The overview, or the operations that contain all words. */
export function overviewPage(reference: Reference, words: string): string {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0)
    return pageOf(reference, { title: 'Overview', content: overview(reference) });
  const found = reference.operations.filter(({ method, path, summary, group }) => {
    const text = `${method} ${path} ${summary} ${group}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  const count = `${found.length} ${found.length === 1 ? 'operation' : 'operations'}`;
  const content = `<h1>Search</h1><p class="soft" role="status">${count} with “${escapeHtml(words)}”</p>${operationList(found)}`;
  return pageOf(reference, { title: 'Search', content, words });
}

/** The page at `/docs/<slug>`; `undefined` if no group has this address. */
export function groupPage(reference: Reference, slug: string): string | undefined {
  const group = reference.groups.find(({ name }) => addressOf(name) === `/docs/${slug}`);
  if (group === undefined) return undefined;
  const own = reference.operations.filter((operation) => operation.group === group.name);
  const content = `<h1>${escapeHtml(group.name)}</h1><p>${inline(group.description)}</p><div id="reference" data-group="${escapeHtml(group.name)}"></div><noscript>${operationList(own)}<p>The details need JavaScript. Without it, read <a href="${escapeHtml(reference.url)}">the OpenAPI document</a>.</p></noscript>`;
  return pageOf(reference, { title: group.name, content });
}

function overview({ title, about, url, groups, operations }: Reference): string {
  const rows = groups.map(({ name, description }) => {
    const count = operations.filter(({ group }) => group === name).length;
    return `<li><a href="${addressOf(name)}">${escapeHtml(name)}</a> <span class="soft">${count}</span><p>${inline(description)}</p></li>`;
  });
  const paragraphs = about.split('\n\n').map((text) => `<p>${inline(text)}</p>`);
  return `<h1>${escapeHtml(title)}</h1>${paragraphs.join('')}<p><a href="${escapeHtml(url)}">OpenAPI document</a></p><h2>Groups</h2><ul class="groups">${rows.join('')}</ul>`;
}

function operationList(operations: readonly ListedOperation[]): string {
  const rows = operations.map(({ method, path, id, group, summary }) => {
    const link = `${addressOf(group)}#/${encodeURIComponent(group)}/${id}`;
    return `<li><a href="${escapeHtml(link)}"><b class="${method.toLowerCase()}">${method}</b> <code>${escapeHtml(path)}</code></a> <span>${escapeHtml(summary)}</span></li>`;
  });
  return `<ul class="operations">${rows.join('')}</ul>`;
}

/** Markdown of one paragraph: only code. */
function inline(text: string): string {
  return escapeHtml(text).replaceAll(/`([^`]*)`/g, '<code>$1</code>');
}

interface PageParts {
  readonly title: string;
  readonly content: string;
  readonly words?: string;
}

function pageOf(reference: Reference, { title, content, words = '' }: PageParts): string {
  const { files, url, groups } = reference;
  const links = [
    ['/docs', 'Overview'] as const,
    ...groups.map(({ name }) => [addressOf(name), name] as const),
  ];
  const navigation = links.map(([to, name]) => {
    const current = name === title ? ' aria-current="page"' : '';
    return `<li><a href="${to}"${current}>${escapeHtml(name)}</a></li>`;
  });
  const head = `<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${escapeHtml(title)} – ${escapeHtml(reference.title)}</title><link rel="icon" href="${assetPath(files.icon)}"><link rel="stylesheet" href="${assetPath(files.reference.style)}"><script type="module" src="${assetPath(files.reference.script)}"></script>`;
  const search = `<form role="search" action="/docs"><label for="q">Search all operations</label><input id="q" name="q" type="search" maxlength="100" value="${escapeHtml(words)}"><button>Search</button></form>`;
  return `<!doctype html><html lang="en" data-openapi="${escapeHtml(url)}"><head>${head}</head><body><a class="skip" href="#content">Skip to the content</a><header><a class="brand" href="/">${escapeHtml(reference.title)}</a>${search}</header><nav aria-label="Groups"><ul>${navigation.join('')}</ul></nav><main id="content">${content}</main></body></html>`;
}
