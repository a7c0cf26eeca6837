/**
 * The API as one page for people, made from the OpenAPI document of the running server: how to
 * start, every route with a command that works, every error. Nothing in it comes from elsewhere.
 */
import { FAULTS } from '../../core/faults.ts';
import { type OpenApiDocument, type Operation, wholeOperation } from '../openapi/openapi.ts';
import { type Html, escapeHtml, html, line, prose } from './html.ts';
import type { PageOperation } from './calls.ts';
import { codeTabs, operationSection } from './operation.ts';
import { samplesOf, sdkMethod } from './samples.ts';

export interface PageParts {
  /** Prefix of the service's own headers is `x-<name>-`. */
  readonly serviceName: string;
  /** Addresses of the files that the page loads. */
  readonly scriptUrl: string;
  readonly styleUrl: string;
  readonly iconUrl: string;
}

const METHODS = ['get', 'head', 'post', 'put', 'patch', 'delete'] as const;

/** The page, in pieces of some milliseconds. */
export function* docsPage(
  document: OpenApiDocument,
  parts: PageParts,
): Generator<undefined, string> {
  const base = document.servers[0]?.url ?? '';
  const operations = operationsOf(document, base);
  const groups = document.tags.map((tag) => ({
    ...tag,
    id: idOf(tag.name),
    operations: operations.filter(({ operation }) => operation.tags[0] === tag.name),
  }));
  const sections = new Map<PageOperation, Html>();
  for (const one of operations) {
    sections.set(one, operationSection(one, document));
    yield;
  }
  const { title, version, description } = document.info;
  const [lead = '', ...others] = description.split('\n\n');
  const start = startBlocks(base, title, parts.serviceName);
  yield;
  const body = html`<a class="skip" href="#content">Skip to the content</a>
    <div class="page">
      ${navigation(title, start, groups)}
      <main id="content">
        <header class="top">
          <h1>${title}</h1>
          <div class="lead">${prose(lead)}</div>
          <ul class="facts">
            <li>Base URL <code>${base}</code></li>
            <li>Version ${version}</li>
            <li><a href="${base}/openapi.json">OpenAPI 3.1</a></li>
            <li><a href="/console">Console</a></li>
          </ul>
        </header>
        ${startSection(start)}
        ${groups.map(
          (group) =>
            html`<section>
              <h2 id="${group.id}">${group.name}</h2>
              <p class="soft">${line(group.description)}</p>
              ${group.operations.map((one) => sections.get(one))}
            </section>`,
        )}
        ${errorSection(others.join('\n\n'))}
        <footer>${title}, version ${version}. This page needs nothing from other servers.</footer>
      </main>
    </div>`;
  return wholePage(title, new URL(base).pathname, body, parts);
}

function wholePage(title: string, basePath: string, body: Html, urls: PageParts): string {
  return `<!doctype html><html lang="en" data-base="${escapeHtml(basePath)}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${escapeHtml(title)}</title><link rel="icon" href="${urls.iconUrl}"><link rel="stylesheet" href="${urls.styleUrl}"><script type="module" src="${urls.scriptUrl}"></script></head><body>${body.html}</body></html>`;
}

function operationsOf(document: OpenApiDocument, base: string): PageOperation[] {
  return Object.entries(document.paths).flatMap(([path, item]) => {
    // Paths outside the base path say so by a server of their own.
    const own = (item as { servers?: readonly { url: string }[] }).servers?.[0]?.url;
    return METHODS.flatMap((method): PageOperation[] => {
      const operation: Operation | undefined = item[method];
      return operation === undefined
        ? []
        : [
            {
              method,
              path,
              operation: wholeOperation(operation, document),
              url: (own ?? base) + path,
            },
          ];
    });
  });
}

interface Group {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly operations: readonly PageOperation[];
}

function navigation(title: string, start: readonly Block[], groups: readonly Group[]): Html {
  const routes = groups.map(
    (group) =>
      html`<h2>${group.name}</h2>
        <ul>
          ${group.operations.map(
            ({ method, operation }) =>
              html`<li>
                <a href="#${operation.operationId}"
                  ><span class="verb ${method}">${shortVerb(method)}</span>${operation.summary}</a
                >
              </li>`,
          )}
        </ul>`,
  );
  const links = start.map(([id, words]) => html`<li><a href="#${id}">${words}</a></li>`);
  return html`<nav aria-label="Contents">
    <div class="search" hidden>
      <input
        id="search"
        type="text"
        role="combobox"
        placeholder="Search"
        aria-label="Search routes, fields and errors"
        aria-autocomplete="list"
        aria-expanded="false"
        aria-controls="found"
        autocomplete="off"
        autocapitalize="off"
        spellcheck="false"
        enterkeyhint="go"
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
    <div id="found" role="listbox" aria-label="Found" popover="manual"></div>
    <details open>
      <summary><span class="brand">${title}</span></summary>
      <ul>
        <li><a href="/console">Console</a></li>
      </ul>
      <h2>Start</h2>
      <ul>
        ${links}
      </ul>
      ${routes}
      <h2>Reference</h2>
      <ul>
        <li><a href="#errors">Errors</a></li>
      </ul>
    </details>
  </nav>`;
}

function shortVerb(method: string): string {
  return method === 'delete' ? 'DEL' : method.toUpperCase();
}

function idOf(name: string): string {
  return `tag-${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`;
}

/** One part of the start: its id, title, text and samples. */
type Block = readonly [id: string, title: string, text: string, samples: readonly Html[]];

function startBlocks(base: string, title: string, serviceName: string): readonly Block[] {
  const method = sdkMethod('POST', '/chat/completions');
  const chat = (id: string, options: object): Html[] => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const samples = samplesOf({
      method: 'POST',
      url: `${base}/chat/completions`,
      credential: 'API_KEY',
      body: { kind: 'json', value: { model: 'default', messages, ...options } },
      sdk: method && { baseUrl: base, method, ids: [] },
    });
    return [codeTabs(id, samples)];
  };
  return [
    [
      'start',
      'First request',
      `Ask the operator of ${title.replace(/ API$/, '')} for an API key and send it as \`Authorization: Bearer\`. A key is a secret: keep it out of whatever you publish. INFERENCE keys call models; ADMIN keys also manage keys and read the account's history.\n\nThe model \`default\` is always there. \`GET /models\` lists the others with their prices. With a key at hand, [try it on this page](#postChatCompletions).`,
      chat('start-chat', {}),
    ],
    [
      'sdk',
      'OpenAI SDKs',
      `Every client of the OpenAI protocol works: set its base URL and key. For errors in OpenAI's shape send the header \`x-${serviceName}-error-format: openai\`.`,
      [],
    ],
    [
      'wallets',
      'Wallets',
      'Where the operator turned payments on, a wallet needs no account. Top up with USDC by `POST /x402/top-up` (x402), then sign each request with `SIGN-IN-WITH-X`. A request without credentials gets a 402 that says what can be paid and how to sign in. Clients for x402 do all of it by themselves.',
      [],
    ],
    [
      'streaming',
      'Streaming',
      'With `"stream": true` events come as they are made and end with `[DONE]`. The last chunk before it carries `usage` and `cost`. Leaving early stops the model, and what was produced until then is paid.',
      chat('stream-chat', { stream: true }),
    ],
    [
      'retries',
      'Retries and idempotency',
      'Try 429, 500 and 503 again after `Retry-After` seconds, or with growing pauses. `x-should-retry: false` says that the same request cannot succeed.\n\nSend an `Idempotency-Key` with requests that cost money: however often one is repeated within 24 hours, it runs and is charged once, and repeats get the same answer with `Idempotent-Replayed: true`.',
      [],
    ],
    [
      'limits',
      'Limits',
      'Limits count by account and model, in requests and tokens a minute. Every answer tells them in `x-ratelimit-*`, and `GET /api_keys/rate_limits` lists them all. More than 20 failed requests within 30 seconds block a caller for 30 seconds.',
      [],
    ],
    [
      'money',
      'What it costs',
      'Requests are paid from a prepaid balance. The most that a request can cost is set aside before it runs, the true cost is taken when it ends, and a request that fails before its first text is free. `cost` in the answer says what was taken, `GET /usage/{id}` is the receipt, `GET /billing/balance` says what is left.',
      [],
    ],
  ];
}

function startSection(blocks: readonly Block[]): Html {
  return html`<section>
    <h2 id="tag-start">Start</h2>
    ${blocks.map(
      ([id, heading, text, samples]) =>
        html`<article id="${id}">
          <h3>${heading}</h3>
          <div class="about">${prose(text)}</div>
          ${samples.length > 0 && html`<div class="samples">${samples}</div>`}
        </article>`,
    )}
  </section>`;
}

function errorSection(about: string): Html {
  const rows = Object.entries(FAULTS)
    .toSorted(([, a], [, b]) => a.status - b.status)
    .map(
      ([code, { status, message, remedy }]) =>
        html`<tr id="error-${code}">
          <td>${status}</td>
          <td><code>${code}</code></td>
          <td>${line(message)}</td>
          <td>${line(remedy)}</td>
        </tr>`,
    );
  return html`<section>
    <h2 id="errors">Errors</h2>
    <p class="soft">
      An error is <code>{"error": "a sentence", "code": "A_WORD"}</code>. Validation adds
      <code>details</code> (a tree) and <code>issues</code> (a list).
    </p>
    <div class="soft about">${prose(about)}</div>
    <div class="wide" role="region" aria-label="Errors" tabindex="0">
      <table>
        <thead>
          <tr>
            <th>Status</th>
            <th>Code</th>
            <th>Meaning</th>
            <th>What to do</th>
          </tr>
        </thead>
        <tbody>
          ${rows}
        </tbody>
      </table>
    </div>
  </section>`;
}
