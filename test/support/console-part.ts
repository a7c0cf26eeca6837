/**
 * Loads components of the console into a document, to test them without a browser. The responses of
 * the server are those of the test.
 */
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build, stop } from 'esbuild';
import { parseHTML } from 'linkedom';
import { replaceGlobals } from './replace-globals.ts';

/** Attempts to find an element, each after 50 ms. */
const MAX_TRIES = 20;
const APP = fileURLToPath(new URL('../../src/console/app/', import.meta.url));

export interface SentRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: unknown;
}

export interface ConsolePart {
  readonly sent: SentRequest[];
  /** Returns a response or its JSON. */
  respond: (request: SentRequest) => unknown;
  /** Shows a component with these props. */
  readonly show: (props: object) => Promise<void>;
  readonly type: (label: string, value: string) => Promise<void>;
  readonly press: (label: string) => Promise<void>;
  /** Presses the mouse beside the last dialog. */
  readonly pressOutside: () => Promise<void>;
}

/** `path` below `src/console/app`, and the name of the component. `rights`: of the session. */
export async function consolePart(
  path: string,
  component: string,
  rights: readonly string[] = [],
): Promise<ConsolePart> {
  const { document, window } = parseHTML('<html><body></body></html>');
  const page = {
    document,
    window,
    Element: window.Element,
    HTMLElement: window.HTMLElement,
    location: { origin: 'http://localhost', pathname: '/console', search: '' },
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
  };
  let show: (props?: object) => void = () => undefined;
  const rendered = () => new Promise<void>((resolve) => setTimeout(resolve, 50));
  // Before the members are restored, which a page that is left open would miss.
  after(async () => {
    show();
    await rendered();
  });
  replaceGlobals({ ...page, fetch });
  // The document implements neither dialogs, which overlays are, nor scrolling.
  const none = (): void => undefined;
  Object.assign(window.Element.prototype, { showModal: none, close: none, scrollIntoView: none });
  const contents = `import { h, render } from 'preact';
    import { LocationProvider } from 'preact-iso';
    import { session } from '${APP}session.ts';
    import { ${component} as Component } from '${APP}${path}';
    session.value = { rights: ${JSON.stringify(rights)} };
    export const show = (props) =>
      render(props && h(LocationProvider, null, h(Component, props)), document.body);`;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: APP, loader: 'tsx' },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    mainFields: ['module', 'main'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
  });
  await stop();
  const code = Buffer.from(outputFiles[0]?.contents ?? []).toString('base64');
  ({ show } = (await import(`data:text/javascript;base64,${code}`)) as { show: typeof show });
  // On a busy machine a component can need longer.
  const found = async <T>(find: () => T | null | undefined, name: string): Promise<T> => {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const element = find();
      if (element) return element;
      await rendered();
    }
    throw new Error(`There is no ${name}`);
  };
  const part: ConsolePart = {
    sent: [],
    respond: () => ({}),
    show: async (props) => {
      show(props);
      await rendered();
    },
    type: async (label, value) => {
      const labels = () => [...document.querySelectorAll('label')];
      const field = await found(() => {
        const named = labels().find((one) => one.textContent === label);
        return document.getElementById(named?.getAttribute('for') ?? '');
      }, `field "${label}"`);
      Object.assign(field, { value });
      field.dispatchEvent(new window.Event('input', { bubbles: true }));
      await rendered();
    },
    press: async (label) => {
      const buttons = () => [...document.querySelectorAll('button')];
      const named = () => buttons().findLast((one) => one.textContent === label);
      const button = await found(named, `button "${label}"`);
      button.dispatchEvent(new window.Event('click', { bubbles: true, cancelable: true }));
      const form = button.getAttribute('type') === 'submit' ? button.closest('form') : null;
      form?.dispatchEvent(new window.Event('submit', { bubbles: true, cancelable: true }));
      await rendered();
    },
    pressOutside: async () => {
      const dialog = [...document.querySelectorAll('dialog')].at(-1);
      dialog?.dispatchEvent(new window.Event('mousedown', { bubbles: true }));
      await rendered();
    },
  };
  globalThis.fetch = async (url, options = {}) => {
    const request = {
      method: options.method ?? 'GET',
      path: (url as string).replace('/api/v1', ''),
      headers: new Headers(options.headers),
      body: typeof options.body === 'string' ? (JSON.parse(options.body) as unknown) : undefined,
    };
    part.sent.push(request);
    const result = part.respond(request);
    return result instanceof Response ? result : Response.json(result);
  };
  return part;
}
