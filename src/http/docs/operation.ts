/** One route on the page: what it does, what it takes and answers, and a command that calls it. */
import { STATUS_CODES } from 'node:http';
import type {
  OpenApiDocument,
  WholeOperation,
  OperationContent,
  OperationParameter,
  OperationResponse,
} from '../openapi/openapi.ts';
import { fieldsOf, kindOf } from './fields.ts';
import { type Html, html, line, prose } from './html.ts';

/** Characters of a body that fit beside `-d`. */
const SHORT_BODY = 44;

export interface PageOperation {
  readonly method: string;
  readonly path: string;
  readonly operation: WholeOperation;
  /** Address of the path, with the base path where it belongs. */
  readonly url: string;
}

export function operationSection(one: PageOperation, document: OpenApiDocument): Html {
  const { method, path, operation } = one;
  return html`<article id="${operation.operationId}">
    <h3>${operation.summary}</h3>
    <p class="path"><span class="verb ${method}">${method.toUpperCase()}</span>${path}</p>
    <div class="about">
      ${badges(operation)} ${operation.description !== undefined && prose(operation.description)}
    </div>
    <div class="columns">
      <div>
        ${parameterList(operation.parameters ?? [], document)} ${requestFields(operation, document)}
        ${responseList(operation, document)}
      </div>
      <aside>${sample('curl', curlOf(one))} ${answerSamples(operation)}</aside>
    </div>
  </article>`;
}

function badges(operation: WholeOperation): Html {
  const names = (operation.security ?? []).map((scheme) => Object.keys(scheme)[0]);
  const words: Readonly<Record<string, string>> = {
    apiKey: 'API key',
    adminKey: 'ADMIN key',
    wallet: 'Wallet',
  };
  const shown = names.map((name) => (name === undefined ? 'No key needed' : (words[name] ?? name)));
  return html`<div class="badges">
    ${shown.map((word) => html`<span class="badge">${word}</span>`)}
  </div>`;
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

export function sample(title: string, text: string): Html {
  return html`<div class="sample">
    <div class="title"><span>${title}</span><button type="button" hidden>Copy</button></div>
    <pre tabindex="0"><code>${text}</code></pre>
  </div>`;
}

/** A command that works once the key stands in the environment. */
export function curlOf({ method, url, operation }: PageOperation): string {
  const parameters = operation.parameters ?? [];
  const target = parameters
    .filter((one) => one.in === 'path')
    .reduce((text, one) => text.replace(`{${one.name}}`, one.example ?? one.name), url);
  const query = parameters
    .filter((one) => one.in === 'query' && one.required)
    .map((one) => `${one.name}=${one.example ?? one.name}`);
  const address = query.length === 0 ? target : `${target}?${query.join('&')}`;
  const lines = [`curl ${quoted(address)}`];
  if (method === 'head') lines.push('-I');
  else if (method !== 'get' && method !== 'post') lines.push(`-X ${method.toUpperCase()}`);
  const scheme = Object.keys(operation.security?.[0] ?? {})[0];
  if (scheme === 'apiKey') lines.push('-H "Authorization: Bearer $API_KEY"');
  if (scheme === 'adminKey') lines.push('-H "Authorization: Bearer $ADMIN_KEY"');
  if (scheme === 'wallet') lines.push('-H "SIGN-IN-WITH-X: $SIGN_IN"');
  lines.push(...bodyOf(operation.requestBody?.content ?? {}));
  if (method === 'post' && operation.requestBody === undefined) lines.push('-X POST');
  return lines.join(' \\\n  ');
}

function bodyOf(content: OperationContent): string[] {
  const json = content['application/json'];
  if (json !== undefined) {
    return ["-H 'Content-Type: application/json'", `-d ${quoted(jsonText(json.example))}`];
  }
  const [type] = Object.keys(content);
  if (type === undefined) return [];
  if (type.startsWith('multipart/')) return ["-F 'image=@photo.png'"];
  return [`-H 'Content-Type: ${type}'`, '--data-binary @file'];
}

/** On one line when it fits, else indented under the command. */
function jsonText(value: unknown): string {
  const short = JSON.stringify(value);
  if (short.length <= SHORT_BODY) return short;
  return JSON.stringify(value, null, 2).replaceAll('\n', '\n  ');
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
