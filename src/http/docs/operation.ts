/** One route on the page: what it does, what it takes and answers, and a command that calls it. */
import type {
  OpenApiDocument,
  WholeOperation,
  OperationContent,
  OperationParameter,
  OperationResponse,
} from '../openapi/openapi.ts';
import { STATUS_CODES } from '../../core/node-http.ts';
import { type PageOperation, samplesFor, tryFacts } from './calls.ts';
import { fieldsOf, kindOf } from './fields.ts';
import { type Html, html, line, prose } from './html.ts';
import type { Sample } from './samples.ts';
import type { TryFacts } from './try-facts.ts';

export function operationSection(one: PageOperation, document: OpenApiDocument): Html {
  const { method, path, operation } = one;
  const id = operation.operationId;
  const facts = tryFacts(one, document);
  const samples = samplesFor(one, facts, document.servers[0]?.url ?? '');
  return html`<article id="${id}">
    <h3>
      ${operation.summary}
      <a class="anchor" href="#${id}" aria-label="Link to ${operation.summary}">#</a>
    </h3>
    <p class="path"><span class="verb ${method}">${method.toUpperCase()}</span>${path}</p>
    <div class="about">
      ${badges(operation, facts)}
      ${operation.description !== undefined && prose(operation.description)}
    </div>
    <div class="columns">
      <div>
        ${parameterList(operation.parameters ?? [], document)} ${requestFields(operation, document)}
        ${responseList(operation, document)}
      </div>
      <aside>
        ${codeTabs(id, samples)} ${isForPeople(operation) ? undefined : tryPlace(facts)}
        ${answerSamples(operation)}
      </aside>
    </div>
  </article>`;
}

/** Pages are opened, not called. */
function isForPeople(operation: WholeOperation): boolean {
  return Object.values(operation.responses)[0]?.content?.['text/html'] !== undefined;
}

function tryPlace(facts: TryFacts): Html {
  return html`<div class="try" hidden>
    <button type="button" class="open" aria-expanded="false">Try it</button>
    <script type="application/json">
      ${data(facts)}
    </script>
  </div>`;
}

function badges(operation: WholeOperation, facts: TryFacts): Html {
  const schemes = (operation.security ?? []).map((scheme) => Object.keys(scheme)[0]);
  const words: Readonly<Record<string, string>> = {
    apiKey: 'API key',
    adminKey: 'ADMIN key',
    wallet: 'Wallet',
  };
  const shown = schemes.map((name) => (name === undefined ? 'No key' : (words[name] ?? name)));
  return html`<ul class="badges" aria-label="Needs">
    ${
      facts.credential === 'wallet'
        ? html`<li class="badge warn">Signed by a wallet</li>`
        : shown.map((word) => html`<li class="badge">${word}</li>`)
    }
    ${facts.isPaid && html`<li class="badge">Costs money</li>`}
    ${facts.isDestructive && html`<li class="badge bad">Cannot be undone</li>`}
  </ul>`;
}

function parameterList(
  parameters: readonly OperationParameter[],
  document: OpenApiDocument,
): Html | undefined {
  if (parameters.length === 0) return undefined;
  const rows = parameters.map((one) => {
    const kind = kindOf(one.schema, document.components);
    return html`<div class="field">
      <dt>
        <code>${one.name}</code
        ><span class="kind">${kind}, in the ${one.in}</span
        >${one.required && html`<span class="must">required</span>`}
      </dt>
      <dd>${line(one.description)}</dd>
    </div>`;
  });
  return html`<h4>Parameters</h4>
    <dl class="fields">${rows}</dl>`;
}

function requestFields(operation: WholeOperation, document: OpenApiDocument): Html | undefined {
  const content = operation.requestBody?.content;
  if (content === undefined) return undefined;
  return html`${Object.entries(content).map(
    ([type, { schema }]) =>
      html`<h4>Body, <code>${type}</code></h4>
        ${fieldsOf(schema, document.components) ?? html`<p class="soft">${kindOf(schema, document.components)}</p>`}`,
  )}`;
}

function responseList(operation: WholeOperation, document: OpenApiDocument): Html {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const tone = Number(status) < 400 ? 'good' : 'bad';
    return html`<li>
      <details>
        <summary>
          <span class="code ${tone}">${status}</span> ${STATUS_CODES[Number(status)] ?? ''}
        </summary>
        <div class="inside">
          ${prose(response.description)}${Number(status) < 400 && answerFields(response, document)}
        </div>
      </details>
    </li>`;
  });
  return html`<h4>Answers</h4>
    <ul class="statuses">
      ${rows}
    </ul>`;
}

function answerFields(response: OperationResponse, document: OpenApiDocument): Html {
  const bodies = Object.entries(response.content ?? {}).map(([type, { schema }]) => {
    const shown = fieldsOf(schema, document.components);
    return shown === undefined
      ? undefined
      : html`<h4><code>${type}</code></h4>
          ${shown}`;
  });
  const names = Object.keys(response.headers ?? {}).filter((name) => !name.startsWith('access-'));
  const headers = names.map((name) => html`<code>${name}</code> `);
  return html`${bodies}
    <h4>Headers</h4>
    <p>${headers}</p>`;
}

function answerSamples(operation: WholeOperation): Html {
  const [status, response] = Object.entries(operation.responses)[0] ?? [];
  const content: OperationContent = response?.content ?? {};
  const shown = Object.entries(content).flatMap(([type, { example }]) =>
    example === undefined ? [] : [sample(`${status ?? ''} ${type}`, exampleText(example))],
  );
  return html`${shown}`;
}

function exampleText(example: unknown): string {
  return typeof example === 'string' ? example.trimEnd() : JSON.stringify(example, null, 2);
}

/** One text, with its name and a button that copies it. */
export function sample(title: string, text: string): Html {
  return html`<div class="sample">
    <div class="title"><span>${title}</span>${COPY}</div>
    <pre tabindex="0"><code>${text}</code></pre>
  </div>`;
}

const COPY = html`<button type="button" class="copy" hidden>Copy</button>`;

/** The same in several languages, the first of which is shown until another is chosen. */
export function codeTabs(id: string, samples: readonly Sample[]): Html {
  const tabs = samples.map(
    ({ name }, at) =>
      html`<button
        type="button"
        role="tab"
        id="${id}-tab-${at}"
        aria-controls="${id}-code-${at}"
        aria-selected="${at === 0 ? 'true' : 'false'}"
        tabindex="${at === 0 ? '0' : '-1'}"
        data-language="${name}"
      >
        ${name}
      </button>`,
  );
  const texts = samples.map(
    ({ name, text }, at) =>
      html`<pre
        id="${id}-code-${at}"
        role="tabpanel"
        aria-labelledby="${id}-tab-${at}"
        tabindex="0"
        data-language="${name}"
        ${at > 0 && HIDDEN}
      ><code>${text}</code></pre>`,
  );
  return html`<div class="sample code">
    <div class="title">
      <div role="tablist" aria-label="Language">${tabs}</div>
      ${COPY}
    </div>
    ${texts}
  </div>`;
}

const HIDDEN = html` hidden`;

/** JSON that stands in the page, whatever is in its texts. */
function data(value: unknown): Html {
  return { html: JSON.stringify(value).replaceAll('<', String.raw`\u003c`) };
}
