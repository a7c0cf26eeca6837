/** Selects an operator page by the last part of the address. */
import { useRoute } from 'preact-iso';
import { Accounts } from '../operator/accounts.tsx';
import { Audit } from '../operator/audit.tsx';
import { Books } from '../operator/books.tsx';
import { Backups } from '../operator/backups.tsx';
import { Check, Configuration } from '../operator/configuration.tsx';
import { Engines } from '../operator/engines.tsx';
import { Payments } from '../operator/payments.tsx';
import { Failures, Requests } from '../operator/requests.tsx';
import { Revenue } from '../operator/revenue.tsx';
import { Videos } from '../operator/videos.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Empty } from '../parts/loaded.tsx';
import { isOperator } from '../session.ts';
import { NoPage } from './no-page.tsx';

const PAGES: Readonly<Record<string, () => preact.JSX.Element>> = {
  accounts: Accounts,
  requests: Requests,
  failures: Failures,
  revenue: Revenue,
  books: Books,
  engines: Engines,
  videos: Videos,
  payments: Payments,
  audit: Audit,
  backups: Backups,
  configuration: Configuration,
  check: Check,
};

export function Operator() {
  const { params } = useRoute();
  if (!isOperator.value) {
    return (
      <>
        <PageHead title="Operators only" />
        <Empty title="Only the operator of the server can open this page">
          <p>Sign in with an ADMIN key of an operator account.</p>
        </Empty>
      </>
    );
  }
  const Shown = PAGES[params['part'] ?? ''] ?? NoPage;
  return <Shown />;
}
