import asyncio
import threading

from twinlog.client.consuming.listener_threads import ListenerThreads


async def test_every_item_is_worked_on_once_and_reported_in_the_loop():
    reported, loop_thread = [], threading.current_thread()
    done = asyncio.Event()

    def report(item: int, result: int) -> None:
        assert threading.current_thread() is loop_thread
        reported.append((item, result))
        if len(reported) == 500:
            done.set()

    threads = ListenerThreads(4, lambda item: item * 2, report)
    threads.start()
    for item in range(500):
        threads.put(item)
    async with asyncio.timeout(20):
        await done.wait()
    await threads.close()
    assert sorted(reported) == [(item, item * 2) for item in range(500)]
    assert threads.open_items == 0


async def test_a_result_is_reported_while_other_items_still_wait_for_a_thread():
    gate, reported = threading.Event(), asyncio.Event()
    threads = ListenerThreads(2, lambda item: gate.wait(20) if item else True, lambda item, _: reported.set())
    threads.start()
    for item in (1, 0, 1, 1, 1):  # both threads end up waiting, with items left
        threads.put(item)
    try:
        async with asyncio.timeout(20):
            await reported.wait()
    finally:
        gate.set()
    await threads.close()


async def test_close_drops_what_no_thread_has_begun_and_waits_for_the_rest():
    gate, begun, worked = threading.Event(), threading.Semaphore(0), []

    def work(item: int) -> int:
        begun.release()
        gate.wait(20)
        worked.append(item)
        return item

    reported = []
    threads = ListenerThreads(2, work, lambda item, result: reported.append(item))
    threads.start()
    for item in range(6):
        threads.put(item)
    assert await asyncio.to_thread(begun.acquire, timeout=20) and await asyncio.to_thread(begun.acquire, timeout=20)
    closing = asyncio.ensure_future(threads.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    threads.put(9)
    assert sorted(reported) == sorted(worked) == [0, 1]
