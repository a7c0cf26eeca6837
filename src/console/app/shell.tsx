/** The frame of all pages: routing, navigation and the offline bar. */
import { ErrorBoundary, Route, Router, lazy, useLocation } from 'preact-iso';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './api.ts';
import { usdText } from './format.ts';
import { balance, liveState } from './live.ts';
import { JOIN_PAGE, Join } from './pages/join.tsx';
import { NoPage } from './pages/no-page.tsx';
import { Overview } from './pages/overview.tsx';
import { SignIn } from './pages/sign-in.tsx';
import { Welcome } from './pages/welcome.tsx';
import { Announcements, toastError } from './parts/announce.tsx';
import { Segments, Select } from './parts/form.tsx';
import type { Session } from './shapes.ts';
import { SearchPalette } from './parts/search-palette.tsx';
import { Brand } from './parts/brand.tsx';
import { Id } from './parts/values.tsx';
import { Failure, Loading } from './parts/loaded.tsx';
import { isOutdated, isReachable, loadPage } from './server-state.ts';
import {
  can,
  changeAccount,
  findSession,
  isOperator,
  listsKeys,
  session,
  signOut,
} from './session.ts';
import { type Theme, chooseTheme, theme } from './theme.ts';

const Activity = lazy(async () => (await loadPage(() => import('./pages/activity.tsx'))).Activity);
const Keys = lazy(async () => (await loadPage(() => import('./pages/keys.tsx'))).Keys);
const Batches = lazy(async () => (await loadPage(() => import('./pages/batches.tsx'))).Batches);
const Budgets = lazy(async () => (await loadPage(() => import('./pages/budgets.tsx'))).Budgets);
const Webhooks = lazy(async () => (await loadPage(() => import('./pages/webhooks.tsx'))).Webhooks);
const Credit = lazy(async () => (await loadPage(() => import('./pages/credit.tsx'))).Credit);
const Statement = lazy(
  async () => (await loadPage(() => import('./pages/statement.tsx'))).Statement,
);
const Playground = lazy(
  async () => (await loadPage(() => import('./pages/playground.tsx'))).Playground,
);
const Models = lazy(async () => (await loadPage(() => import('./pages/models.tsx'))).Models);
const Limits = lazy(async () => (await loadPage(() => import('./pages/limits.tsx'))).Limits);
const Sessions = lazy(async () => (await loadPage(() => import('./pages/sessions.tsx'))).Sessions);
const Members = lazy(async () => (await loadPage(() => import('./pages/members.tsx'))).Members);
const Operator = lazy(async () => (await loadPage(() => import('./pages/operator.tsx'))).Operator);

type Link = readonly [path: string, name: string];

function ownLinks(): readonly Link[] {
  return [
    ['/console', 'Overview'],
    ['/console/activity', 'Activity'],
    ...shownIf(can('use'), ['/console/playground', 'Playground']),
    ['/console/models', 'Models'],
    ...shownIf(can('use'), ['/console/batches', 'Batches']),
    ['/docs', 'API reference'],
  ];
}

function accountLinks(): readonly Link[] {
  return [
    ...shownIf(listsKeys.value, ['/console/keys', 'Keys']),
    ...shownIf(listsKeys.value, ['/console/budgets', 'Budgets']),
    ...shownIf(can('develop'), ['/console/webhooks', 'Webhooks']),
    ['/console/credit', 'Credit'],
    ['/console/limits', 'Limits'],
    ...shownIf(listsKeys.value, ['/console/members', 'Members']),
    ['/console/sessions', 'Sessions'],
  ];
}

function allLinks(): readonly Link[] {
  return [...ownLinks(), ...accountLinks(), ...(isOperator.value ? OPERATOR : [])];
}

function shownIf(isShown: boolean, link: Link): readonly Link[] {
  return isShown ? [link] : [];
}

const OPERATOR: readonly Link[] = [
  ['/console/operator/accounts', 'Accounts'],
  ['/console/operator/requests', 'Requests'],
  ['/console/operator/revenue', 'Revenue'],
  ['/console/operator/books', 'Books'],
  ['/console/operator/engines', 'Engines'],
  ['/console/operator/videos', 'Video jobs'],
  ['/console/operator/payments', 'Payments'],
  ['/console/operator/audit', 'Audit'],
  ['/console/operator/backups', 'Backups'],
  ['/console/operator/configuration', 'Configuration'],
  ['/console/operator/check', 'Check'],
];

export function Shell() {
  const { path } = useLocation();
  const [failure, setFailure] = useState<ApiError>();
  const isWelcome = path === '/';
  const load = (): void => {
    setFailure(undefined);
    findSession().catch((error: unknown) => setFailure(ApiError.of(error)));
  };
  useEffect(load, []);
  let shown;
  if (isWelcome) shown = <Welcome />;
  else if (path === JOIN_PAGE && session.value !== undefined) shown = <Join />;
  else if (failure !== undefined) shown = <Alone>{<Failure error={failure} retry={load} />}</Alone>;
  else if (session.value === undefined) shown = <Alone>{<Loading />}</Alone>;
  else if (session.value === null || path.startsWith('/console/sign-in')) shown = <SignIn />;
  else shown = <SignedIn />;
  return (
    <>
      {shown}
      <Announcements />
    </>
  );
}

function Alone({ children }: { children: preact.ComponentChildren }) {
  return <main class="alone">{children}</main>;
}

function SignedIn() {
  const { path } = useLocation();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const seen = useRef(path);
  useEffect(() => {
    // Loads the next page from the newer build.
    if (seen.current !== path && isOutdated.peek()) location.reload();
    // Screen readers and the scroll position start at the top of the new page.
    if (!first.current && seen.current !== path) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
    seen.current = path;
  }, [path]);
  return (
    <div class="page">
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <Navigation path={path} />
      <main id="content" ref={main} tabIndex={-1}>
        <ServerNotice />
        <ErrorBoundary onError={toastError}>
          <Router>
            <Route path="/console" component={Overview} />
            <Route path="/console/activity/:view?" component={Activity} />
            <Route path="/console/batches" component={Batches} />
            <Route path="/console/keys" component={Keys} />
            <Route path="/console/budgets" component={Budgets} />
            <Route path="/console/webhooks" component={Webhooks} />
            <Route path="/console/credit" component={Credit} />
            <Route path="/console/statement" component={Statement} />
            <Route path="/console/playground/:kind?" component={Playground} />
            <Route path="/console/models" component={Models} />
            <Route path="/console/limits" component={Limits} />
            <Route path="/console/sessions" component={Sessions} />
            <Route path="/console/members" component={Members} />
            <Route path="/console/operator/:part" component={Operator} />
            <Route default component={NoPage} />
          </Router>
        </ErrorBoundary>
      </main>
    </div>
  );
}

function ServerNotice() {
  if (!isReachable.value) {
    return (
      <div class="offline" role="status">
        The server cannot be reached. The page shows its last data and reconnects automatically.
      </div>
    );
  }
  if (!isOutdated.value) return null;
  return (
    <div class="offline row" role="status">
      <span>The server runs a newer version of the console.</span>
      <button type="button" class="small" onClick={() => location.reload()}>
        Reload
      </button>
    </div>
  );
}

function Navigation({ path }: { path: string }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  return (
    <nav aria-label="Console" class={isOpen ? 'open' : ''}>
      <div class="bar">
        <Brand />
        <NavigationBalance />
        <SearchPalette pages={allLinks()} />
        <button
          type="button"
          class="menu small"
          aria-expanded={isOpen}
          aria-controls="menu"
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? 'Close' : 'Menu'}
        </button>
      </div>
      <div id="menu" class="links">
        <Links path={path} links={ownLinks()} />
        <Links path={path} links={accountLinks()} title="Account" />
        {isOperator.value && <Links path={path} links={OPERATOR} title="Operator" />}
        <Viewer />
      </div>
    </nav>
  );
}

function Links({ path, links, title }: { path: string; links: readonly Link[]; title?: string }) {
  return (
    <>
      {title !== undefined && <h2>{title}</h2>}
      <ul>
        {links.map(([to, name]) => (
          <li key={to}>
            <a href={to} aria-current={isAt(path, to) ? 'page' : undefined}>
              {name}
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

function isAt(path: string, to: string): boolean {
  return path === to || (to !== '/console' && path.startsWith(`${to}/`));
}

function NavigationBalance() {
  const { value } = balance;
  if (value === undefined) return null;
  const words = { off: 'paused', connecting: 'connecting', on: 'live' }[liveState.value];
  return (
    <a class="funds" href="/console/credit" title="Available credit">
      <span class={`dot ${liveState.value}`} />
      <span class="unseen">{words}: </span>
      <span class="num">{usdText(value.available.usd, 2)}</span>
    </a>
  );
}

const THEMES: readonly (readonly [Theme, string])[] = [
  ['system', 'Auto'],
  ['light', 'Light'],
  ['dark', 'Dark'],
];

function Viewer() {
  const { value } = session;
  if (value === null || value === undefined) return null;
  return (
    <div class="viewer">
      <p>
        {value.wallet === null ? (
          <strong class="text">{value.member?.email ?? value.keyDescription ?? 'API key'}</strong>
        ) : (
          <Id value={value.wallet} />
        )}
        <span class="soft">
          {credentialWords(value)}, plan {value.plan}
        </span>
      </p>
      <AccountChoice />
      <Segments legend="Colours" value={theme.value} options={THEMES} onInput={chooseTheme} />
      <button type="button" class="small" onClick={() => void signOut().catch(toastError)}>
        Sign out
      </button>
    </div>
  );
}

function credentialWords({ kind, keyKind, member }: Session): string {
  if (member !== null) return `Role ${member.role}`;
  return kind === 'wallet' ? 'Wallet' : `${keyKind} key`;
}

/** Changes to another account of the person. */
function AccountChoice() {
  const { value } = session;
  const accounts = value?.member?.accounts ?? [];
  if (value == null || accounts.length < 2) return null;
  return (
    <Select
      label="Account"
      value={value.accountId}
      options={accounts.map(({ id, name, role }) => [id, `${name} (${role})`])}
      onInput={(id) => void changeAccount(id).catch(toastError)}
    />
  );
}
