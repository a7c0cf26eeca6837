/** The page of an address that no other page has. */
import { Empty } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';

export function NoPage() {
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title="There is no page at this address">
        <p>
          <a href="/console">Go to the overview</a>
        </p>
      </Empty>
    </>
  );
}
