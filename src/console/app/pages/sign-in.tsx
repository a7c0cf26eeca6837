/**
 * The sign-in page: at a provider, by API key, by wallet signature, or by a link with a token after
 * `#`. Removes tokens and codes from the address before it uses them, and does not store keys.
 */
import { useLocation } from 'preact-iso';
import { useEffect, useState } from 'preact/hooks';
import { RAILS } from '../page-facts.ts';
import { ErrorMessage, Form, TextField, useAction } from '../parts/form.tsx';
import { Brand } from '../parts/brand.tsx';
import { useTitle } from '../parts/page-head.tsx';
import { Notice } from '../parts/loaded.tsx';
import {
  completeProviderSignIn,
  endedBecause,
  providers,
  session,
  signInByKey,
  signInByLink,
} from '../session.ts';
import { ProviderButtons } from './provider-buttons.tsx';
import { WalletSignIn } from './wallet-sign-in.tsx';

const PAGE = '/console/sign-in';
/** The redirect URI of a provider. */
const RETURN = /^\/console\/sign-in\/([\w-]+)$/;

/** Returns `next` if it is a path of the console, else the overview: prevents open redirects. */
function safeNext(next: string | undefined): string {
  const { origin } = location;
  const url = next !== undefined && URL.canParse(next, origin) ? new URL(next, origin) : undefined;
  const isOwn = url?.origin === origin && /^\/console(?:\/|$)/.test(url.pathname);
  return isOwn && url.pathname !== PAGE ? url.pathname + url.search : '/console';
}

/** Removes the token after `#` from the address and its history entry, and returns it. */
function takeToken(): string | undefined {
  const token = location.hash.slice(1);
  if (token === '' || location.pathname !== PAGE) return undefined;
  history.replaceState(null, '', location.pathname + location.search);
  return token;
}

/** Removes the response of a provider from the address, and returns it. */
function takeResponse(): { readonly provider: string; readonly query: string } | undefined {
  const provider = RETURN.exec(location.pathname)?.[1];
  const query = location.search;
  if (provider === undefined) return undefined;
  history.replaceState(null, '', PAGE);
  return query === '' ? undefined : { provider, query };
}

export function SignIn() {
  useTitle('Sign in');
  const { path, query, route, url } = useLocation();
  const [key, setKey] = useState('');
  const byKey = useAction();
  const byLink = useAction();
  const byProvider = useAction();
  const go = (next = query.next): void => {
    if (path.startsWith(PAGE)) route(safeNext(next), true);
  };
  useEffect(() => {
    const enter = (): void => {
      const token = takeToken();
      const response = takeResponse();
      if (response !== undefined) {
        const { provider, query: returned } = response;
        void byProvider.run(async () => go(await completeProviderSignIn(provider, returned)));
      } else if (token !== undefined) {
        void byLink.run(() => signInByLink(token)).then((isIn) => isIn && go());
      } else if (session.peek() !== null) go();
    };
    enter();
    // A link that is pasted while this page is open changes only the part after `#`.
    addEventListener('hashchange', enter);
    return () => removeEventListener('hashchange', enter);
  }, [url]);
  const submit = async (): Promise<void> => {
    const isIn = await byKey.run(() => signInByKey(key.trim()));
    if (!isIn) return;
    setKey('');
    go();
  };
  return (
    <main class="alone">
      <Brand />
      <div class="card sign-in">
        <h1>Sign in</h1>
        {endedBecause.value !== undefined && <Notice>{endedBecause.value}</Notice>}
        {byLink.isRunning && <p role="status">Signing in with the link…</p>}
        {byLink.error !== undefined && (
          <Notice tone="warn">The link is not valid: {byLink.error.message}</Notice>
        )}
        {byProvider.isRunning && <p role="status">Signing in…</p>}
        <ErrorMessage error={byProvider.error} />
        <ProviderButtons pending={{ next: path.startsWith(PAGE) ? query.next : url }} />
        {providers.value.length > 0 && (
          <p class="or">
            <span>or</span>
          </p>
        )}
        <Form submit={() => void submit()}>
          <TextField
            label="API key"
            hint="The server exchanges the key for a session cookie. The browser does not store the key."
            type="password"
            name="api-key"
            autoComplete="off"
            spellcheck={false}
            required
            value={key}
            onInput={setKey}
          />
          <ErrorMessage error={byKey.error} />
          <button
            type="submit"
            class={providers.value.length > 0 ? 'wide' : 'primary wide'}
            disabled={byKey.isRunning || byLink.isRunning}
          >
            {byKey.isRunning ? 'Signing in…' : 'Sign in'}
          </button>
        </Form>
        {RAILS.length > 0 && <WalletSignIn signedIn={go} />}
      </div>
      <p class="soft">
        No key? The operator of the server creates one with <code>farebox keys create</code>.{' '}
        <a href="/docs">API reference</a>
      </p>
    </main>
  );
}
